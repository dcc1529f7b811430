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
}

// scheduled are the settings of the configuration.
func (s *server) scheduled() snapshotSettings {
	folder := snapshot.Folder{Path: s.EtcdSnapshotDir}
	if own := s.data.Server("db", "snapshots"); folder.Path == "" || folder.Path == own {
		folder = snapshot.Folder{Path: own, Own: true}
	}
	return snapshotSettings{folder: folder, name: s.EtcdSnapshotName, compress: s.EtcdSnapshotCompress, retention: s.EtcdSnapshotRetention}
}

// requested are the settings of the configuration but for what a call says.
func (s *server) requested(call snapshot.Call) snapshotSettings {
	set := s.scheduled()
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

// saveSnapshot takes a snapshot of this server's member and then deletes what is too much.
func (s *server) saveSnapshot(ctx context.Context, set snapshotSettings) (snapshot.Result, error) {
	var out snapshot.Result
	if !s.snapshotMu.TryLock() {
		return out, errSnapshotRunning
	}
	defer s.snapshotMu.Unlock()
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
	file, err := set.folder.Save(ctx, c, snapshot.Request{Name: set.name, Node: s.NodeName, At: time.Now(), Compress: set.compress,
		Metadata: s.snapshotMetadata(ctx)})
	if err != nil {
		s.snapshotFailed(file)
		s.syncSoon(ctx)
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
	s.syncSoon(ctx)
	return out, nil
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
	var out any
	var err error
	set := s.requested(call)
	switch call.Operation {
	case snapshot.OperationSave:
		out, err = s.saveSnapshot(r.Context(), set)
	case snapshot.OperationList:
		out, err = s.listSnapshots(set)
	case snapshot.OperationDelete:
		var gone []string
		gone, err = set.folder.Delete(call.Name...)
		out = snapshot.Result{Deleted: gone}
		s.syncSoon(r.Context())
	case snapshot.OperationPrune:
		var gone []string
		gone, err = set.folder.Prune(set.name, set.retention)
		out = snapshot.Result{Deleted: gone}
		s.syncSoon(r.Context())
	default:
		http.Error(w, fmt.Sprintf("%q is no operation on snapshots", call.Operation), http.StatusBadRequest)
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

func (s *server) listSnapshots(set snapshotSettings) (snapshot.List, error) {
	out := snapshot.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []snapshot.Object{}}
	files, err := set.folder.List()
	for _, f := range files {
		out.Items = append(out.Items, snapshot.Describe(f, s.NodeName))
	}
	return out, err
}

// tokenHash names the token of this cluster without giving it away.
func (s *server) tokenHash() string { return supervisor.Hash([]byte(s.tokens.Load().server))[:12] }
