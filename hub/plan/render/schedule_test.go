package render

import (
	"slices"
	"strings"
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestSnapshotSchedule: with a schedule that cannot be read, k3s and RKE2 would save no snapshot, and nobody would know.
func TestSnapshotSchedule(t *testing.T) {
	const field, argument = "spec.rkeConfig.etcd.snapshotScheduleCron", "spec.rkeConfig.machineGlobalConfig.etcd-snapshot-schedule-cron"
	for schedule, valid := range map[string]bool{
		"0 */6 * * *": true, "@every 6h": true, "@daily": true, "CRON_TZ=Europe/Berlin 0 5 * * mon-fri": true, "TZ=Not/Known 0 5 * * *": true,
		"0 */6 * *": false, "every 6 hours": false, "0 0 */6 * * *": false, "0 24 * * *": false, "6h": false, "@every": false,
		"TZ=UTC": false, "TZ=UTC ": false, "TZ=UTC TZ=UTC": false, "CRON_TZ=UTC": false,
	} {
		for _, of := range []string{field, argument} {
			in := machineOf(t, k3s, "a", "ecw")
			if of == field {
				in.Cluster.Spec.ETCD = &rkev1.ETCD{SnapshotScheduleCron: schedule}
			} else {
				in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{snapshotSchedule: schedule}
			}
			plan, problems := Plan(in)
			if err := problems.Err(); err != nil {
				t.Fatalf("%q: %v", schedule, err)
			}
			if got := fileOf(t, plan, "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"); strings.Contains(got, snapshotSchedule) != valid {
				t.Errorf("%q: the configuration is %s", schedule, got)
			}
			warns := slices.ContainsFunc(problems, func(p Problem) bool { return p.Field == of && !p.Kept })
			if warns == valid {
				t.Errorf("%q in %s: problems %+v", schedule, of, problems)
			}
		}
	}
}
