package embedded

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// etcdQuota is how large the database of etcd may be, in bytes. 10,000 machines need some hundred MiB.
func (o Options) etcdQuota() int64 { return cmp.Or(o.quota, 8<<30) }

// freeSpace ends etcd's alarm about a full database, if there is room once old versions are removed and what they took is given back. etcd
// keeps the alarm in its data, and refuses all writes until then: no API server could start.
func (s *etcdServer) freeSpace(ctx context.Context, quota int64, log *slog.Logger) error {
	full := func(alarm *pb.AlarmMember) bool { return alarm.Alarm == pb.AlarmType_NOSPACE }
	if !slices.ContainsFunc(s.member.Alarms(), full) {
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
