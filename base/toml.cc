// TOML by toml++, turned into the tree of base/node.h. The only C++ of the project: no exception and no C++ type leaves
// this file.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#define TOML_MAX_NESTED_VALUES 64
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <string>
#include <vector>

#include "base/node.h"

namespace {

struct failure {
  dp_status status;
  int line;
  std::string text;
};

[[noreturn]] void fail(const toml::node &at, std::string text) {
  throw failure{DP_BAD_INPUT, static_cast<int>(at.source().begin.line), std::move(text)};
}

constexpr int max_depth = 64;

dp_node *convert(dp_document *document, const toml::node &from, const char *key, int line, int depth);

void append(dp_document *document, dp_node *parent, dp_node *child) {
  if (!dp_node_append(document, parent, child)) throw std::bad_alloc();
}

void convert_table(dp_document *document, const toml::table &table, dp_node *node, int depth) {
  // toml++ sorts by key; the file's order is restored from the keys' places.
  struct member {
    const toml::key *key;
    const toml::node *value;
  };
  std::vector<member> members;
  for (auto it = table.begin(); it != table.end(); ++it) members.push_back({&it->first, &it->second});
  auto place = [](const member &m) {
    const auto source = m.key->source().begin;
    return std::make_pair(source.line, source.column);
  };
  std::stable_sort(members.begin(), members.end(), [&](const member &a, const member &b) { return place(a) < place(b); });
  for (const member &m : members) {
    const std::string key(m.key->str());
    if (key.find('\0') != std::string::npos) fail(*m.value, "found a NUL in a key");
    append(document, node,
           convert(document, *m.value, key.c_str(), static_cast<int>(m.key->source().begin.line), depth + 1));
  }
}

dp_node *convert(dp_document *document, const toml::node &from, const char *key, int line, int depth) {
  if (depth > max_depth) fail(from, "found more than 64 levels, allowed: at most 64");
  dp_node_kind kind = DP_NODE_NULL;
  switch (from.type()) {
    case toml::node_type::table: kind = DP_NODE_TABLE; break;
    case toml::node_type::array: kind = DP_NODE_ARRAY; break;
    case toml::node_type::string: kind = DP_NODE_STRING; break;
    case toml::node_type::integer: kind = DP_NODE_INTEGER; break;
    case toml::node_type::floating_point: kind = DP_NODE_REAL; break;
    case toml::node_type::boolean: kind = DP_NODE_BOOLEAN; break;
    default: fail(from, std::string(key ? key : "a value") + ": found a date or time, allowed: a number, string, boolean, array or table");
  }
  dp_node *node = dp_node_new(document, kind, key, line);
  if (!node) throw std::bad_alloc();
  switch (kind) {
    case DP_NODE_TABLE: convert_table(document, *from.as_table(), node, depth); break;
    case DP_NODE_ARRAY:
      for (const toml::node &item : *from.as_array())
        append(document, node, convert(document, item, nullptr, static_cast<int>(item.source().begin.line), depth + 1));
      break;
    case DP_NODE_STRING: {
      const std::string &text = from.as_string()->get();
      if (text.find('\0') != std::string::npos) fail(from, "found a NUL in a string");
      node->string = dp_arena_strdup(&document->arena, text.c_str());
      if (!node->string) throw std::bad_alloc();
      break;
    }
    case DP_NODE_INTEGER:
      node->integer = from.as_integer()->get();
      node->real = static_cast<double>(node->integer);
      break;
    case DP_NODE_REAL:
      node->real = from.as_floating_point()->get();
      if (!std::isfinite(node->real)) {
        const char *found = std::isnan(node->real) ? "nan" : node->real > 0 ? "inf" : "-inf";
        fail(from, std::string(key ? key : "a value") + ": found " + found + ", allowed: a finite number");
      }
      break;
    default: node->boolean = from.as_boolean()->get(); break;
  }
  return node;
}

}  // namespace

extern "C" dp_status dp_document_parse_toml(const char *text, size_t length, const char *name, dp_document *document,
                                            dp_error *error) {
  dp_document made = {};
  try {
    made.file = dp_arena_strdup(&made.arena, name);
    if (!made.file) throw std::bad_alloc();
    const toml::table table = toml::parse(std::string_view(text, length), std::string_view(name));
    made.root = convert(&made, table, nullptr, 1, 0);
    *document = made;
    return DP_OK;
  } catch (const toml::parse_error &reason) {
    const dp_status status = dp_fail(error, DP_BAD_INPUT, "%s:%d: not valid TOML: %s", name,
                                     static_cast<int>(reason.source().begin.line), reason.what());
    dp_document_free(&made);
    return status;
  } catch (const failure &reason) {
    const dp_status status = dp_fail(error, reason.status, "%s:%d: %s", name, reason.line, reason.text.c_str());
    dp_document_free(&made);
    return status;
  } catch (const std::bad_alloc &) {
    dp_document_free(&made);
    return dp_fail_memory(error);
  } catch (const std::exception &reason) {
    const dp_status status = dp_fail(error, DP_BAD_INPUT, "%s:1: not valid TOML: %s", name, reason.what());
    dp_document_free(&made);
    return status;
  }
}
