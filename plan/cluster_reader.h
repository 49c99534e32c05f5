/* What the readers of a cluster file share: plan/cluster_file.c has the file and its nodes, plan/cluster_rows.c the
 * rows of a node. Internal to plan/.
 */
#ifndef DP_PLAN_CLUSTER_READER_H
#define DP_PLAN_CLUSTER_READER_H

#include "plan/cluster_file.h"

typedef struct plan_cluster_reader {
  const plan_catalogue *catalogue;
  dp_arena *arena;
  plan_cluster_file *file;
  dp_error *error;
} plan_cluster_reader;

/* The file's own rows, then the catalogue's; NULL when there is none of that name. */
const plan_device_model *plan_cluster_find_model(const plan_cluster_reader *r, const char *name);
const plan_link_model *plan_cluster_find_link(const plan_cluster_reader *r, const char *name);
/* The link class under `key` of `table`, or the class called `fallback` (NULL: *link becomes NULL). */
dp_status plan_cluster_read_link(const plan_cluster_reader *r, const dp_node *table, const char *section,
                                 const char *key, const char *fallback, const plan_link_model **link);
/* Refuses names of over PLAN_MAX_NAME bytes: a name stands in the name of every link it touches. NULL is fine. */
dp_status plan_cluster_check_name(const plan_cluster_reader *r, const dp_node *table, const char *section,
                                  const char *name);
/* How many tables an array of tables has, 0 for NULL; refuses other kinds and more than `most`. */
dp_status plan_cluster_count_rows(const plan_cluster_reader *r, const dp_node *node, const char *section, size_t most,
                                  size_t *count);

/* Rows of a node, in this order: devices and NICs name PCIe rows, NVLink rows name devices. */
dp_status plan_cluster_read_pcie(const plan_cluster_reader *r, const dp_node *rows, plan_node_row *node);
dp_status plan_cluster_read_device(const plan_cluster_reader *r, const dp_node *table, const dp_node *peer_to_peer,
                                   plan_node_row *node);
dp_status plan_cluster_read_nvlink(const plan_cluster_reader *r, const dp_node *table, plan_node_row *node);
/* Joins the cards of one interconnect (NONE: all cards) as their boards are, when there are at least two. */
dp_status plan_cluster_default_nvlink(const plan_cluster_reader *r, plan_node_row *node, plan_interconnect interconnect,
                                      plan_nvlink_shape shape);
dp_status plan_cluster_read_nic(const plan_cluster_reader *r, const dp_node *table, plan_node_row *node);

#endif
