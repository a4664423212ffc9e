import pytest

from launching import Launcher


@pytest.fixture
def launcher():
    instance = Launcher()
    yield instance
    instance.close()


@pytest.fixture(params=["local", "mpirun"])
def engine(request):
    return request.param
