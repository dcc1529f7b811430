package render

import (
	"errors"
	"strings"

	"github.com/robfig/cron/v3"
)

// snapshotSchedule is the argument with the times at which snapshots are saved.
const snapshotSchedule = "etcd-snapshot-schedule-cron"

// checkSnapshotSchedule leaves out a schedule that cannot be read. k3s and RKE2 start with it, and save no snapshot on a schedule.
func (b *builder) checkSnapshotSchedule() {
	schedule := b.args.text(snapshotSchedule)
	if !b.Machine.Etcd || schedule == "" {
		return
	}
	err := checkSchedule(schedule)
	if err == nil {
		return
	}
	field := b.fieldOf(snapshotSchedule)
	if etcd := b.Cluster.Spec.ETCD; etcd != nil && etcd.SnapshotScheduleCron != "" {
		field = "spec.rkeConfig.etcd.snapshotScheduleCron"
	}
	b.problems.warn(field, "is %q, which is no schedule: %s; it was left out, and snapshots are saved at the times that %s has by default; "+
		"write five fields such as \"0 */6 * * *\"", schedule, err, b.Cluster.Release.Runtime)
	delete(b.args, snapshotSchedule)
}

// checkSchedule reads a schedule as k3s and RKE2 do, with the same parser, but for its time zone, which need not be known here.
func checkSchedule(schedule string) error {
	zone, times, found := strings.Cut(schedule, " ")
	if found && (strings.HasPrefix(zone, "TZ=") || strings.HasPrefix(zone, "CRON_TZ=")) {
		schedule = strings.TrimSpace(times)
	}
	// The parser panics for a time zone without times.
	if strings.HasPrefix(schedule, "TZ=") || strings.HasPrefix(schedule, "CRON_TZ=") {
		return errors.New("there are no times behind the time zone")
	}
	_, err := cron.ParseStandard(schedule)
	return err
}
