/* whatif for a terminal, and as CSV. */
#include <string.h>

#include "base/str.h"
#include "cli/text.h"
#include "cli/whatif.h"

sim_break_even cli_whatif_rent(const cli_whatif_answer *answer, const sim_hardware *row) {
  const sim_price none = {.name = "the reference"};
  return sim_break_even_rent(&row->price, answer->reference ? &answer->reference->price : &none, &answer->terms);
}

sim_break_even cli_whatif_purchase(const cli_whatif_answer *answer, const sim_hardware *row) {
  const sim_price none = {.name = "the reference"};
  return sim_break_even_purchase(&row->price, answer->reference ? &answer->reference->price : &none, &answer->terms);
}

sim_resource cli_whatif_most_helpful(const sim_hardware *row) {
  int most = 0;
  for (int r = 1; r < SIM_RESOURCE_COUNT; r++)
    if (row->gain[r] > row->gain[most]) most = r;
  return (sim_resource)most;
}

/* ---- CSV ---- */

static void print_csv_text(const char *text, FILE *out) { /* quoted, quotes doubled */
  fputc('"', out);
  for (; *text; text++) {
    if (*text == '"') fputc('"', out);
    fputc(*text, out);
  }
  fputc('"', out);
}

static void print_csv_known(double value, FILE *out) { /* nothing where it is not known */
  if (value > 0)
    fprintf(out, "%.9g,", value);
  else
    fputc(',', out);
}

static void print_csv_start(const sim_hardware *h, bool found, bool fits, const sim_trial *best, FILE *out) {
  print_csv_text(h->scenario.cluster.name, out);
  fprintf(out, ",%zu,%s,%.9g,", h->scenario.cluster.devices.count, fits ? "true" : "false",
          fits ? best->throughput_samples_per_s : 0);
  print_csv_known(fits ? best->usd_per_million_samples : 0, out);
  print_csv_known(fits ? best->joules_per_sample : 0, out);
  print_csv_known(found ? (double)best->peak_bytes : 0, out);
}

static void print_csv_plan(bool found, const sim_trial *best, FILE *out) {
  char plan[128];
  if (found) print_csv_text(sim_candidate_brief(&best->candidate, plan), out);
}

static void print_csv_point(const sim_hardware *h, const sim_sweep *sweep, const sim_sweep_value *value,
                            const sim_sweep_point *point, FILE *out) {
  print_csv_start(h, point->found, point->fits, &point->trial, out);
  fputc(',', out);
  print_csv_plan(point->found, &point->trial, out);
  for (int r = 0; r < SIM_RESOURCE_COUNT; r++) fputc(',', out);
  fputc(',', out);
  print_csv_text(sweep->key, out);
  fputc(',', out);
  if (sweep->numeric)
    fputs(value->text, out);
  else
    print_csv_text(value->text, out);
  fprintf(out, ",%s,", point->changed ? "true" : "false");
  if (point->why) print_csv_text(point->why, out);
  fputc('\n', out);
}

void cli_whatif_csv(const cli_whatif_answer *answer, FILE *out) {
  const sim_whatif_result *result = answer->result;
  fprintf(out,
          "cluster,devices,fits,throughput_samples_per_s,usd_per_million_samples,joules_per_sample,"
          "peak_memory_bytes,break_even_months,plan");
  for (int r = 0; r < SIM_RESOURCE_COUNT; r++) fprintf(out, ",gain_of_10_percent_more_%s", sim_resource_names[r]);
  fprintf(out, ",sweep_key,sweep_value,plan_changed,why\n");
  for (int i = 0; i < result->row_count; i++) {
    const sim_hardware *h = &result->rows[i];
    const sim_break_even rent = cli_whatif_rent(answer, h);
    print_csv_start(h, h->found, h->fits, &h->best, out);
    print_csv_known(rent.pays == SIM_PAYS_AFTER ? rent.months : 0, out);
    print_csv_plan(h->found, &h->best, out);
    for (int r = 0; r < SIM_RESOURCE_COUNT; r++) {
      if (h->measured)
        fprintf(out, ",%.6g", h->gain[r]);
      else
        fputc(',', out);
    }
    fputs(",,,,", out);
    if (h->why) print_csv_text(h->why, out);
    fputc('\n', out);
  }
  for (int s = 0; s < result->sweep_count; s++) {
    const sim_sweep *sweep = result->sweeps[s].sweep;
    for (int r = 0; r < result->row_count; r++)
      for (int v = 0; v < sweep->count; v++)
        if (result->sweeps[s].points[r * sweep->count + v].done)
          print_csv_point(&result->rows[r], sweep, &sweep->values[v], &result->sweeps[s].points[r * sweep->count + v],
                          out);
  }
}

/* ---- tables ---- */

static const char *figure(double value, char out[32]) {
  if (value > 0)
    (void)snprintf(out, 32, "%.4g", value);
  else
    (void)snprintf(out, 32, "?");
  return out;
}

static void print_rows(const cli_whatif_answer *answer) {
  const sim_whatif_result *result = answer->result;
  printf("  %-22s %4s %10s %11s %10s %6s  %s\n", "cluster", "GPUs", "samples/s", "USD/M smpl", "MJ/M smpl", "GB",
         "best plan");
  for (int i = 0; i < result->row_count; i++) {
    const sim_hardware *h = &result->rows[i];
    char plan[128], usd[32], joules[32];
    printf("  %-22.22s %4zu", h->scenario.cluster.name, h->scenario.cluster.devices.count);
    if (h->fits) {
      printf(" %10.4g %11s %10s %6.1f  %s\n", h->best.throughput_samples_per_s,
             figure(h->best.usd_per_million_samples, usd), figure(h->best.joules_per_sample, joules),
             (double)h->best.peak_bytes / 1e9, sim_candidate_brief(&h->best.candidate, plan));
    } else {
      printf("  does not fit\n");
      cli_print_wrapped(4, h->why ? h->why : "");
    }
  }
  printf(
      "\nGB: peak memory of the fullest worker, 1e9 bytes. MJ: at full power of cards and machines.\n"
      "M smpl: a million samples. A plan reads stages x replicas, schedule, microbatches x size; 4/T2: four\n"
      "stages on two devices each.\n");
}

static void print_gains(const sim_whatif_result *result) {
  bool any = false;
  for (int i = 0; i < result->row_count; i++) any = any || result->rows[i].measured;
  if (!any) return;
  printf("\nThroughput gained by 10 %% more of\n  %-22s %9s %9s %9s %9s %9s\n", "cluster", "compute", "mem. bw",
         "links", "host", "mem. size");
  for (int i = 0; i < result->row_count; i++) {
    const sim_hardware *h = &result->rows[i];
    if (!h->measured) continue;
    printf("  %-22.22s", h->scenario.cluster.name);
    for (int r = 0; r < SIM_RESOURCE_COUNT; r++) printf(" %7.1f %%", 100 * h->gain[r]);
    printf("   %s helps most\n", sim_resource_names[cli_whatif_most_helpful(h)]);
  }
}

static void print_break_even(const sim_break_even *b, const char *cluster, const char *against) {
  char line[512], when[64] = "";
  if (b->pays == SIM_PAYS_UNKNOWN) return;
  if (b->pays == SIM_PAYS_AFTER) (void)snprintf(when, sizeof when, "pays after %.1f months", b->months);
  if (b->pays == SIM_PAYS_NEVER) (void)snprintf(when, sizeof when, "never pays");
  if (b->pays == SIM_PAYS_AT_ONCE) (void)snprintf(when, sizeof when, "pays from the first day");
  if (b->pays == SIM_PAYS_UNTIL)
    (void)snprintf(when, sizeof when, "pays from the first day, for %.1f months", b->months);
  (void)snprintf(line, sizeof line, "%s, against %s: %s: %s", cluster, against, when, b->why);
  cli_print_wrapped(2, line);
}

static void print_buying(const cli_whatif_answer *answer) {
  const sim_whatif_result *result = answer->result;
  const sim_hardware *reference = answer->reference;
  bool priced = false;
  for (int i = 0; i < result->row_count; i++) priced = priced || result->rows[i].price.purchase_usd > 0;
  if (!priced || !reference) {
    printf("\nBuying: no purchase_usd is known. Give it in a cluster file, or with --set device.purchase_usd=USD.\n");
    return;
  }
  printf("\nBuying (power at %.4g USD a kWh, %.4g h a month, %.4g %% of them at work)\n", answer->terms.usd_per_kwh,
         answer->terms.hours_per_month, 100 * answer->terms.utilisation);
  for (int i = 0; i < result->row_count; i++) {
    const sim_hardware *h = &result->rows[i];
    char against[128];
    if (h->price.purchase_usd <= 0) continue;
    const sim_break_even rent = cli_whatif_rent(answer, h), purchase = cli_whatif_purchase(answer, h);
    (void)snprintf(against, sizeof against, "renting %s", h == reference ? "it" : reference->scenario.cluster.name);
    print_break_even(&rent, h->scenario.cluster.name, against);
    (void)snprintf(against, sizeof against, "buying %s", reference->scenario.cluster.name);
    if (h != reference) print_break_even(&purchase, h->scenario.cluster.name, against);
    if (rent.pays == SIM_PAYS_UNKNOWN && (h == reference || purchase.pays == SIM_PAYS_UNKNOWN)) {
      char line[512];
      (void)snprintf(line, sizeof line, "%s: unknown: %s", h->scenario.cluster.name, rent.why);
      cli_print_wrapped(2, line);
    }
  }
}

/* ---- sweeps ---- */

static void print_point(const sim_sweep_value *value, const sim_sweep_point *point, int width) {
  char plan[128], usd[32], joules[32];
  if (!point->done) {
    printf("      %*s  not searched: stopped\n", width, value->text);
  } else if (!point->fits) {
    printf("      %*s  %s\n", width, value->text, point->found ? "does not fit" : "cannot be");
    cli_print_wrapped(8 + width, point->why ? point->why : "");
  } else {
    printf("    %s %*s %10.4g %11s %10s %6.1f  %s\n", point->changed ? "*" : " ", width, value->text,
           point->trial.throughput_samples_per_s, figure(point->trial.usd_per_million_samples, usd),
           figure(point->trial.joules_per_sample, joules), (double)point->trial.peak_bytes / 1e9,
           sim_candidate_brief(&point->trial.candidate, plan));
  }
}

/* "From 64 on 4x2 1f1b 16x2 is best, below 8x1 folded 32x2." */
static void print_changes(const sim_sweep *sweep, const sim_sweep_point *points) {
  if (!sweep->numeric) return; /* no order */
  const sim_sweep_point *last = NULL;
  for (int v = 0; v < sweep->count; v++) {
    if (!points[v].fits) continue;
    if (points[v].changed) {
      char now[128], before[128], line[400];
      sim_candidate_brief(&points[v].trial.candidate, now);
      sim_candidate_brief(&last->trial.candidate, before);
      if (strcmp(now, before) != 0)
        (void)snprintf(line, sizeof line, "from %.40s on, %s beats %s", sweep->values[v].text, now, before);
      else
        (void)snprintf(line, sizeof line, "from %.40s on, %s with other skips or recomputation", sweep->values[v].text,
                       now);
      cli_print_wrapped(4, line);
    }
    last = &points[v];
  }
}

static void print_sweep(const sim_whatif_result *result, const sim_sweep_result *swept) {
  const sim_sweep *sweep = swept->sweep;
  int width = 8;
  for (int v = 0; v < sweep->count; v++)
    if ((int)strlen(sweep->values[v].text) > width) width = (int)strlen(sweep->values[v].text);
  printf("\nSweep over %s%s; * another plan than before\n", sweep->key,
         swept->plan_fixed ? ": the plan otherwise stays" : ": the best plan at each value");
  printf("  %-*s %10s %11s %10s %6s  %s\n", width + 3, "cluster", "samples/s", "USD/M smpl", "MJ/M smpl", "GB",
         "best plan");
  for (int r = 0; r < result->row_count; r++) {
    const sim_sweep_point *points = &swept->points[r * sweep->count];
    printf("  %s\n", result->rows[r].scenario.cluster.name);
    for (int v = 0; v < sweep->count; v++) print_point(&sweep->values[v], &points[v], width);
    if (!swept->plan_fixed) print_changes(sweep, points);
  }
}

void cli_whatif_print_tables(const cli_whatif_answer *answer) {
  const sim_whatif_result *result = answer->result;
  printf("%s: global batch %lld%s\n\n", answer->scenario, (long long)answer->global_batch,
         result->stopped ? " (stopped early: better plans may exist, and clusters or points be missing)" : "");
  print_rows(answer);
  print_gains(result);
  print_buying(answer);
  for (int s = 0; s < result->sweep_count; s++) print_sweep(result, &result->sweeps[s]);
}
