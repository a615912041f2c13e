// Headers of the standard library that many files include, compiled once (setup.py): parsing them took most of the
// build. Every file still includes what it uses. (No `#pragma once`: g++ warns of it in what it precompiles.)

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
