#include "lmdeploy/serve/pages.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lmdeploy {
namespace {

std::string text_of(std::string_view path) { return unpacked(*find_page(path, /*with_docs=*/true)->file); }

TEST(EmbeddedFiles, HaveOwnNamesAndUnpackToTheirSize) {
  std::set<std::string_view> names;
  for (const EmbeddedFile& file : embedded_files()) {
    EXPECT_TRUE(names.insert(file.name).second) << file.name;
    EXPECT_EQ(unpacked(file).size(), file.size) << file.name;
    EXPECT_EQ(file.hash.size(), 16u) << file.name;
  }
  EXPECT_GE(names.size(), 12u);
}

TEST(EmbeddedFiles, KeepTheTextOfTheirSource) {
  EXPECT_TRUE(text_of("/pages/markdown.js").ends_with("target.lastElementChild.remove();\n}\n"));
  EXPECT_NE(text_of("/pages/swagger-ui-bundle.js").find("SwaggerUIBundle"), std::string::npos);
}

TEST(Pages, AreFoundByPath) {
  for (const char* path : {"/", "/redoc", "/ui"}) {
    const std::optional<Page> page = find_page(path, true);
    ASSERT_TRUE(page) << path;
    EXPECT_EQ(page->content_type, "text/html; charset=utf-8") << path;
  }
  EXPECT_EQ(find_page("/pages/chat.css", true)->content_type, "text/css; charset=utf-8");
  EXPECT_EQ(find_page("/pages/chat.js", true)->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(find_page("/pages/icon.svg", true)->content_type, "image/svg+xml");
  for (const char* path : {"", "/ui/", "/pages/", "/pages/none.js", "/pages/../ui", "/v1/models", "chat.js"})
    EXPECT_FALSE(find_page(path, true)) << path;
}

TEST(Pages, OfTheDescriptionCanBeOff) {
  for (const char* path : {"/", "/redoc", "/pages/docs.js", "/pages/docs.css", "/pages/swagger-ui.css",
                           "/pages/swagger-ui-bundle.js", "/pages/redoc.standalone.js", "/pages/docs.html"})
    EXPECT_FALSE(find_page(path, false)) << path;
  EXPECT_TRUE(find_page("/ui", false));
  EXPECT_TRUE(find_page("/pages/chat.js", false));
}

/// The values of attr="..." in `html`.
std::vector<std::string> attributes(const std::string& html, const std::string& attr) {
  std::vector<std::string> values;
  const std::string mark = " " + attr + "=\"";
  for (size_t at = html.find(mark); at != std::string::npos; at = html.find(mark, at + 1)) {
    const size_t start = at + mark.size();
    values.push_back(html.substr(start, html.find('"', start) - start));
  }
  return values;
}

TEST(Pages, LoadOnlyFilesThatAreThere) {
  for (const char* path : {"/", "/redoc", "/ui"}) {
    const std::string html = text_of(path);
    size_t files = 0;
    for (const char* attr : {"src", "href"})
      for (const std::string& value : attributes(html, attr)) {
        EXPECT_EQ(value.find("//"), std::string::npos) << value;  // nothing of elsewhere
        if (!value.starts_with("pages/")) continue;
        EXPECT_TRUE(find_page("/" + value, true)) << value;
        ++files;
      }
    EXPECT_GE(files, 2u) << path;
  }
}

TEST(Pages, AllowNothingFromElsewhere) {
  for (const char* path : {"/", "/redoc", "/ui", "/pages/chat.js"}) {
    const std::string_view policy = find_page(path, true)->policy;
    EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self';")) << path;
    EXPECT_EQ(policy.find("http"), std::string_view::npos) << path;
    EXPECT_EQ(policy.find('*'), std::string_view::npos) << path;
    EXPECT_EQ(policy.find("unsafe-eval"), std::string_view::npos) << path;
  }
  EXPECT_EQ(find_page("/ui", true)->policy.find("unsafe"), std::string_view::npos);
}

TEST(AcceptEncoding, AllowsGzip) {
  for (const char* header : {"gzip", "GZIP", "x-gzip", "deflate, gzip", "gzip;q=0.5",
                             "br;q=1.0, gzip ; q=0.001", "*", "identity;q=0, *;q=1", "gzip;level=3"})
    EXPECT_TRUE(accepts_gzip(header)) << header;
  for (const char* header : {"", "identity", "br", "gzip;q=0", "gzip; q=0.000", "gzip;Q=0", "*;q=0",
                             "gzip;q=0, *", "gzipped", ",;=,"})
    EXPECT_FALSE(accepts_gzip(header)) << header;
}

TEST(IfNoneMatch, ComparesWeakly) {
  const std::string_view tag = "W/\"0123\"";
  for (const char* header : {"W/\"0123\"", "\"0123\"", "\"a\", W/\"0123\"", "*"})
    EXPECT_TRUE(matches_etag(header, tag)) << header;
  for (const char* header : {"", "\"012\"", "0123", "W/\"01234\"", ","})
    EXPECT_FALSE(matches_etag(header, tag)) << header;
}

}  // namespace
}  // namespace lmdeploy
