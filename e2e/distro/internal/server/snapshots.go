package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

const (
	// snapshotTimeout is how long taking a snapshot may last.
	snapshotTimeout = 5 * time.Minute
	// snapshotJitter keeps servers from taking scheduled snapshots at the same moment.
	snapshotJitter = 5 * time.Second
)

// errSnapshotRunning is what a second snapshot gets while one is being taken.
var errSnapshotRunning = errors.New("another snapshot is being taken")

// startSnapshots takes snapshots on schedule and keeps the ETCDSnapshotFile objects as the files are, on servers with a member of etcd.
func (s *server) startSnapshots(ctx context.Context) error {
	if s.DisableEtcd {
		return nil
	}
	go s.followSnapshots(ctx)
	if s.EtcdDisableSnapshots {
		return nil
	}
	schedule := cron.New()
	_, err := schedule.AddFunc(s.EtcdSnapshotCron, func() {
		if sleep(ctx, rand.N(snapshotJitter)) != nil {
			return
		}
		if _, err := s.saveSnapshot(ctx, s.scheduled()); err != nil {
			s.log.Error("Cannot take a scheduled snapshot", "error", err)
		}
	})
	if err != nil {
		return fmt.Errorf("etcd-snapshot-schedule-cron: %w", err)
	}
	schedule.Start()
	context.AfterFunc(ctx, func() { schedule.Stop() })
	return nil
}

// snapshotSettings are those of one operation.
type snapshotSettings struct {
	folder    snapshot.Folder
	name      string
	compress  bool
	retention int
	s3        *config.S3 // nil for the folder alone
}

// scheduled are the settings of the configuration.
func (s *server) scheduled() snapshotSettings {
	folder := snapshot.Folder{Path: s.EtcdSnapshotDir}
	if own := s.data.Server("db", "snapshots"); folder.Path == "" || folder.Path == own {
		folder = snapshot.Folder{Path: own, Own: true}
	}
	return snapshotSettings{folder: folder, name: s.EtcdSnapshotName, compress: s.EtcdSnapshotCompress, retention: s.EtcdSnapshotRetention,
		s3: s.S3}
}

// requested are the settings of the configuration but for what a call says.
func (s *server) requested(call snapshot.Call) snapshotSettings {
	set := s.scheduled()
	set.s3 = call.S3
	if call.Dir != nil && *call.Dir != set.folder.Path {
		set.folder = snapshot.Folder{Path: *call.Dir}
	}
	if len(call.Name) > 0 {
		set.name = call.Name[0]
	}
	if call.Compress != nil {
		set.compress = *call.Compress
	}
	if call.Retention != nil {
		set.retention = *call.Retention
	}
	return set
}

// saveSnapshot takes a snapshot of this server's member, copies it to the bucket if there is one, and deletes what is too much.
func (s *server) saveSnapshot(ctx context.Context, set snapshotSettings) (snapshot.Result, error) {
	var out snapshot.Result
	if !s.snapshotMu.TryLock() {
		return out, errSnapshotRunning
	}
	defer s.snapshotMu.Unlock()
	file, err := s.takeSnapshot(ctx, set)
	if err != nil {
		if file.Fault != "" {
			s.snapshotFailed(file)
			s.syncSoon(ctx, set)
		}
		return out, err
	}
	s.log.Info("Took a snapshot of etcd", "file", file.Path, "bytes", file.Size)
	out.Created = []string{file.Name}
	s.faultsMu.Lock()
	s.takenWith[file.Name] = s.tokenHash()
	s.faultsMu.Unlock()
	if out.Deleted, err = set.folder.Prune(set.name, set.retention); err != nil {
		s.log.Warn("Cannot delete old snapshots", "error", err)
	}
	if set.s3 != nil {
		copied := s.upload(ctx, set, file)
		out.Created, out.Deleted = append(out.Created, copied.Created...), append(out.Deleted, copied.Deleted...)
	}
	s.syncSoon(ctx, set, out.Deleted...)
	return out, nil
}

// takeSnapshot writes a snapshot to the folder. The File is also returned when that fails, and then says why.
func (s *server) takeSnapshot(ctx context.Context, set snapshotSettings) (out snapshot.File, err error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	c, err := s.localEtcd()
	if err != nil {
		return out, err
	}
	status, err := c.Status(ctx, "https://"+localEtcdAddress)
	if err != nil {
		return out, fmt.Errorf("asking etcd for its status: %w", err)
	}
	if status.IsLearner {
		return out, errors.New("this etcd member is a learner, of which there are no snapshots")
	}
	return set.folder.Save(ctx, c, snapshot.Request{Name: set.name, Node: s.NodeName, At: time.Now(), Compress: set.compress,
		Metadata: s.snapshotMetadata(ctx)})
}

// answerSnapshot does what the command line asks for.
func (s *server) answerSnapshot(w http.ResponseWriter, r *http.Request) {
	var call snapshot.Call
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.DisableEtcd {
		http.Error(w, "this server has no member of etcd, ask one that has", http.StatusBadRequest)
		return
	}
	set := s.requested(call)
	if set.s3 != nil {
		if _, err := s.bucket(r.Context(), *set.s3); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	out, err := s.doSnapshot(r.Context(), call, set)
	if errors.Is(err, errUnknownOperation) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err != nil {
		s.log.Warn("An operation on snapshots failed", "operation", call.Operation, "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

var errUnknownOperation = errors.New("no such operation on snapshots")

// doSnapshot carries out an operation and returns what is to be answered.
func (s *server) doSnapshot(ctx context.Context, call snapshot.Call, set snapshotSettings) (any, error) {
	var out snapshot.Result
	var err error
	switch call.Operation {
	case snapshot.OperationSave:
		return s.saveSnapshot(ctx, set)
	case snapshot.OperationList:
		return s.listSnapshots(ctx, set)
	case snapshot.OperationDelete:
		out, err = s.deleteSnapshots(ctx, set, call.Name)
	case snapshot.OperationPrune:
		out, err = s.pruneSnapshots(ctx, set)
	default:
		return nil, fmt.Errorf("%w: %q", errUnknownOperation, call.Operation)
	}
	s.syncSoon(ctx, set, out.Deleted...)
	return out, err
}

func (s *server) listSnapshots(ctx context.Context, set snapshotSettings) (snapshot.List, error) {
	out := snapshot.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []snapshot.Object{}}
	files, err := set.folder.List()
	if err != nil {
		return out, err
	}
	if set.s3 != nil {
		b, err := s.bucket(ctx, *set.s3)
		if err != nil {
			return out, err
		}
		copied, err := b.List(ctx)
		if err != nil {
			return out, err
		}
		files = append(files, copied...)
	}
	for _, f := range files {
		out.Items = append(out.Items, snapshot.Describe(f, s.NodeName))
	}
	return out, nil
}

// tokenHash names the token of this cluster without giving it away.
func (s *server) tokenHash() string { return supervisor.Hash([]byte(s.tokens.Load().server))[:12] }
