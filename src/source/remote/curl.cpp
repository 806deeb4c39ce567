#include "source/remote/curl.hpp"

#include <dlfcn.h>
#include <string>

#include "safeshuffle/error.hpp"

namespace safeshuffle::source {
namespace {

constexpr unsigned least_version = 0x074b00;  // 7.75

void* open_library() {
  if (void* const library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL)) return library;
  throw ConfigError("cannot load libcurl, which URLs need: " + std::string(::dlerror()));
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) throw ConfigError("libcurl has no function " + std::string(name));
}

void check_version(const CurlLibrary& curl) {
  const curl_version_info_data* const version = curl.version_info(CURLVERSION_NOW);
  if (version->version_num >= least_version) return;
  throw ConfigError("libcurl " + std::string(version->version) +
                    " is too old: at least 7.75 is needed");
}

CurlLibrary load() {
  void* const library = open_library();
  CurlLibrary curl;
  find(library, "curl_version_info", curl.version_info);
  check_version(curl);
  find(library, "curl_easy_cleanup", curl.easy_cleanup);
  find(library, "curl_easy_getinfo", curl.easy_getinfo);
  find(library, "curl_easy_init", curl.easy_init);
  find(library, "curl_easy_setopt", curl.easy_setopt);
  find(library, "curl_easy_strerror", curl.easy_strerror);
  find(library, "curl_free", curl.free);
  find(library, "curl_getdate", curl.getdate);
  find(library, "curl_global_init", curl.global_init);
  find(library, "curl_multi_add_handle", curl.multi_add_handle);
  find(library, "curl_multi_cleanup", curl.multi_cleanup);
  find(library, "curl_multi_info_read", curl.multi_info_read);
  find(library, "curl_multi_init", curl.multi_init);
  find(library, "curl_multi_perform", curl.multi_perform);
  find(library, "curl_multi_poll", curl.multi_poll);
  find(library, "curl_multi_remove_handle", curl.multi_remove_handle);
  find(library, "curl_slist_append", curl.slist_append);
  find(library, "curl_slist_free_all", curl.slist_free_all);
  find(library, "curl_url", curl.url);
  find(library, "curl_url_cleanup", curl.url_cleanup);
  find(library, "curl_url_get", curl.url_get);
  find(library, "curl_url_set", curl.url_set);
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    throw ConfigError("libcurl cannot be initialised");
  }
  return curl;
}

}  // namespace

const CurlLibrary& curl() {
  static const CurlLibrary library = load();
  return library;
}

}  // namespace safeshuffle::source
