package embedded

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestFreeSpace: a database that was full because of old versions takes writes again after a start; one that is full of the present ones
// does not, and keeps them.
func TestFreeSpace(t *testing.T) {
	options := Options{DataDir: t.TempDir(), quota: 8 << 20}
	etcd := startTestEtcd(t, options)
	defer func() { etcd.close() }()
	value := make([]byte, 512<<10)
	put := func(key string) error {
		_, err := etcd.member.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: value})
		return err
	}
	fill := func(key func(i int) string) {
		t.Helper()
		for i := range 100 {
			if put(key(i)) != nil {
				return
			}
			etcd.member.Backend().ForceCommit() // the size is that of what is committed
		}
		t.Fatal("the database is never full")
	}
	restart := func() {
		t.Helper()
		etcd.close()
		etcd = startTestEtcd(t, options)
		if err := put("after"); err == nil {
			t.Fatal("the alarm is gone with a restart")
		}
		if err := etcd.freeSpace(t.Context(), options.etcdQuota(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}

	fill(func(int) string { return "same" })
	restart()
	if err := put("after"); err != nil {
		t.Errorf("a write when old versions are removed: %v", err)
	}
	if err := etcd.freeSpace(t.Context(), options.etcdQuota(), slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("without an alarm: %v", err)
	}

	for round := 0; put("after") == nil; round++ { // each gives back what had been free between objects
		if round == 10 {
			t.Fatal("a database that is full of objects takes writes")
		}
		fill(func(i int) string { return fmt.Sprint(round, "-", i) })
		restart()
	}
	got, err := etcd.member.Range(t.Context(), &pb.RangeRequest{Key: []byte("same")})
	if err != nil || got.Count != 1 {
		t.Errorf("what was written before: %d, %v", got.GetCount(), err)
	}
}

// TestNearlyFull: the log says that the database is nearly full before writes fail. A start makes it smaller when much of it is not in use.
func TestNearlyFull(t *testing.T) {
	options := Options{DataDir: t.TempDir(), quota: 8 << 20}
	etcd := startTestEtcd(t, options)
	defer func() { etcd.close() }()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	warns := func() bool { return etcd.warnOfSpace(options.etcdQuota(), logger) }
	put := func(size int) {
		t.Helper()
		if _, err := etcd.member.Put(t.Context(), &pb.PutRequest{Key: []byte("same"), Value: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		etcd.member.Backend().ForceCommit() // the size is that of what is committed
	}
	if warns() {
		t.Errorf("an empty database: %s", log.String())
	}
	for !warns() {
		put(512 << 10)
	}
	if !strings.Contains(log.String(), "nearly full") {
		t.Errorf("the log says %q", log.String())
	}
	if err := etcd.freeSpace(t.Context(), options.etcdQuota(), logger); err != nil || !warns() {
		t.Errorf("a database that is in use: %v", err)
	}
	_, err := etcd.member.Compact(t.Context(), &pb.CompactionRequest{Revision: etcd.member.KV().Rev(), Physical: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // pages are free some commits later
		put(1)
	}
	if err := etcd.freeSpace(t.Context(), options.etcdQuota(), logger); err != nil || warns() {
		t.Errorf("a database of old versions: %v", err)
	}
}

// TestSpaceMetrics: metrics tell how large the database is, and how large it may be.
func TestSpaceMetrics(t *testing.T) {
	options := Options{DataDir: t.TempDir(), quota: 8 << 20}
	etcd := startTestEtcd(t, options)
	defer etcd.close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(spaceCollector{etcd, options.etcdQuota()})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	size, used := got["drover_etcd_database_bytes"], got["drover_etcd_database_used_bytes"]
	if used <= 0 || size < used || got["drover_etcd_database_limit_bytes"] != 8<<20 {
		t.Errorf("got %v", got)
	}
}

// TestDiskMetrics: etcd has metrics of these names, and those of the hub have their values.
func TestDiskMetrics(t *testing.T) {
	etcd := startTestEtcd(t, Options{DataDir: t.TempDir()})
	defer etcd.close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(diskCollector{prometheus.DefaultGatherer})
	families, err := registry.Gather()
	if err != nil || len(families) != len(diskMetrics) {
		t.Fatalf("%d of %d metrics: %v", len(families), len(diskMetrics), err)
	}
	for _, family := range families {
		if buckets := family.GetMetric()[0].GetHistogram().GetBucket(); len(buckets) < 2 {
			t.Errorf("%s has the buckets %v", family.GetName(), buckets)
		}
		if commits := family.GetMetric()[0].GetHistogram().GetSampleCount(); family.GetName() == "etcd_disk_backend_commit_duration_seconds" &&
			commits == 0 {
			t.Error("etcd has not committed anything when it started")
		}
	}
}
