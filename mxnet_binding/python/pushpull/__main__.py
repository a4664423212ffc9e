"""``python -m pushpull script.py args...``: see pushpull._run."""

from pushpull._run import main

main()
