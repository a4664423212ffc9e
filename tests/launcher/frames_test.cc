#include "launcher/frames.h"

#include <gtest/gtest.h>

namespace pushpull::launcher {
namespace {

TEST(Frames, ArriveInAnyPieces) {
  const std::string stream = encode_frame(FrameType::kOut, "some output\n") +
                             encode_frame(FrameType::kLeave, "") +
                             encode_frame(FrameType::kEnded, std::string(1000, 'x'));
  for (size_t size = 1; size <= stream.size(); size += 7) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (size_t i = 0; i < stream.size(); i += size) {
      reader.feed(stream.substr(i, size));
      while (true) {
        auto frame = reader.next();
        ASSERT_TRUE(frame);
        if (!*frame) break;
        frames.push_back(**frame);
      }
    }
    ASSERT_EQ(frames.size(), 3u) << size;
    EXPECT_EQ(frames[0].content, "some output\n");
    EXPECT_EQ(frames[1].type, FrameType::kLeave);
    EXPECT_EQ(frames[2].content.size(), 1000u);
  }
}

TEST(Frames, LengthsThatCannotBeAreRefused) {
  FrameReader reader;
  reader.feed(std::string("\x04\xff\xff\xff\xff", 5));
  EXPECT_FALSE(reader.next());
}

TEST(Frames, RequestsKeepEveryByte) {
  StartRequest request;
  request.argv = {"python", "", "new\nline", std::string("zero\0byte", 9)};
  request.environment = {"A=", "BASH_FUNC_f%%=() { :; }", "B=" + std::string(100'000, 'x')};
  request.cores = {0, 5};
  request.log_file = "/tmp/x";
  const auto got = StartRequest::decode(request.encode());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->argv, request.argv);
  EXPECT_EQ(got->environment, request.environment);
  EXPECT_EQ(got->cores, request.cores);
  EXPECT_EQ(got->log_file, request.log_file);
}

TEST(Frames, DamagedRequestsAreRefused) {
  StartRequest request;
  request.argv = {"python"};
  const std::string good = request.encode();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(StartRequest::decode(good.substr(0, length))) << length;
  }
  EXPECT_FALSE(StartRequest::decode(good + "x"));
  std::string negative = good;
  negative[7] = '\x80';
  EXPECT_FALSE(StartRequest::decode(negative));
}

}  // namespace
}  // namespace pushpull::launcher
