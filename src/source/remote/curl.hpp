// libcurl, looked up at run time: programs start without it.
#pragma once

#include <memory>

#define CURL_DISABLE_TYPECHECK  // its macros do not fit calls through pointers
#include <curl/curl.h>

namespace safeshuffle::source {

/// The functions that are used, as curl.h describes them.
struct CurlLibrary {
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_free) free = nullptr;
  decltype(&curl_getdate) getdate = nullptr;
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_multi_add_handle) multi_add_handle = nullptr;
  decltype(&curl_multi_cleanup) multi_cleanup = nullptr;
  decltype(&curl_multi_info_read) multi_info_read = nullptr;
  decltype(&curl_multi_init) multi_init = nullptr;
  decltype(&curl_multi_perform) multi_perform = nullptr;
  decltype(&curl_multi_poll) multi_poll = nullptr;
  decltype(&curl_multi_remove_handle) multi_remove_handle = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
  decltype(&curl_url) url = nullptr;
  decltype(&curl_url_cleanup) url_cleanup = nullptr;
  decltype(&curl_url_get) url_get = nullptr;
  decltype(&curl_url_set) url_set = nullptr;
  decltype(&curl_version_info) version_info = nullptr;
};

/// Never unloaded. Thread-safe. Throws ConfigError that says why there is none; the next call then
/// looks again.
const CurlLibrary& curl();

}  // namespace safeshuffle::source
