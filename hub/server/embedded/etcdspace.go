package embedded

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// etcdQuota is how large the database of etcd may be, in bytes. 10,000 machines need some hundred MiB.
func (o Options) etcdQuota() int64 { return cmp.Or(o.quota, 8<<30) }

const (
	// spaceInterval is how often the size of the database is looked at.
	spaceInterval = time.Hour
	// spaceWarningInterval is how often the log says that it is nearly full.
	spaceWarningInterval = 24 * time.Hour
)

// watchSpace logs once a day that the database is nearly full, until ctx ends: when it is full, all writes fail.
func (s *etcdServer) watchSpace(ctx context.Context, quota int64, log *slog.Logger) {
	ticker := time.NewTicker(spaceInterval)
	defer ticker.Stop()
	var warned time.Time
	for {
		if now := time.Now(); (warned.IsZero() || now.Sub(warned) >= spaceWarningInterval) && s.warnOfSpace(quota, log) {
			warned = now
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// nearlyFull reports whether the database has three quarters of its limit, and how much of it is in use. What old versions took counts for
// the limit, too; etcd uses it again, and gives it back to nobody.
func (s *etcdServer) nearlyFull(quota int64) (size, used int64, nearly bool) {
	backend := s.member.Backend()
	size, used = backend.Size(), backend.SizeInUse()
	return size, used, size >= quota/4*3
}

var (
	databaseSize  = prometheus.NewDesc("drover_etcd_database_bytes", "How large the database of the embedded etcd is.", nil, nil)
	databaseUsed  = prometheus.NewDesc("drover_etcd_database_used_bytes", "How much of the database of the embedded etcd is in use.", nil, nil)
	databaseLimit = prometheus.NewDesc("drover_etcd_database_limit_bytes", "How large the database of the embedded etcd may be.", nil, nil)
)

// spaceCollector reads the size of the database when metrics are collected.
type spaceCollector struct {
	etcd  *etcdServer
	quota int64
}

// Describe implements prometheus.Collector.
func (c spaceCollector) Describe(to chan<- *prometheus.Desc) {
	to <- databaseSize
	to <- databaseUsed
	to <- databaseLimit
}

// Collect implements prometheus.Collector.
func (c spaceCollector) Collect(to chan<- prometheus.Metric) {
	size, used, _ := c.etcd.nearlyFull(c.quota)
	to <- prometheus.MustNewConstMetric(databaseSize, prometheus.GaugeValue, float64(size))
	to <- prometheus.MustNewConstMetric(databaseUsed, prometheus.GaugeValue, float64(used))
	to <- prometheus.MustNewConstMetric(databaseLimit, prometheus.GaugeValue, float64(c.quota))
}

// warnOfSpace logs that the database is nearly full, and reports whether it is.
func (s *etcdServer) warnOfSpace(quota int64, log *slog.Logger) bool {
	size, used, nearly := s.nearlyFull(quota)
	if nearly {
		log.Warn("The database of etcd is nearly full; when it is, all writes fail. Delete objects that are not needed, or restart the hub, "+
			"which makes the database smaller if less than half of it is in use", "size", size, "used", used, "limit", quota)
	}
	return nearly
}

// freeSpace ends etcd's alarm about a full database, if there is room once old versions are removed and what they took is given back. etcd
// keeps the alarm in its data, and refuses all writes until then: no API server could start. Without the alarm, what old versions took is
// given back if the database is nearly full and that is more than half of it: nothing else uses etcd yet, which cannot write meanwhile.
func (s *etcdServer) freeSpace(ctx context.Context, quota int64, log *slog.Logger) error {
	full := func(alarm *pb.AlarmMember) bool { return alarm.Alarm == pb.AlarmType_NOSPACE }
	if !slices.ContainsFunc(s.member.Alarms(), full) {
		size, used, nearly := s.nearlyFull(quota)
		if !nearly || used >= size/2 {
			return nil
		}
		log.Info("The database of etcd is nearly full, and less than half of it is in use; shrinking it", "size", size, "used", used)
		if err := s.member.Defragment(); err != nil { // as with a disk that has no room for the copy; the hub works without it
			log.Error("The database of etcd was not made smaller", "error", err)
		}
		return nil
	}
	log.Warn("The database of etcd was full, so that it refused all writes; removing old versions", "limit", quota)
	if revision := s.member.KV().Rev(); revision > s.member.KV().FirstRev() {
		if _, err := s.member.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: true}); err != nil {
			return fmt.Errorf("removing old versions from etcd: %w", err)
		}
	}
	if err := s.member.Defragment(); err != nil {
		return fmt.Errorf("shrinking the database of etcd: %w", err)
	}
	if size := s.member.Backend().Size(); size > quota/10*9 {
		log.Error("The database of etcd is still full: it refuses all writes but deletions", "size", size, "limit", quota)
		return nil
	}
	_, err := s.member.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE,
		MemberID: uint64(s.member.MemberID())})
	if err != nil {
		return fmt.Errorf("ending etcd's alarm about a full database: %w", err)
	}
	log.Info("The database of etcd has room again", "size", s.member.Backend().Size())
	return nil
}
