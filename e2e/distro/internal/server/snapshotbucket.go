package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/s3"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// maxBuckets is how many buckets stay open.
const maxBuckets = 5

// openBuckets are buckets that took their key.
type openBuckets struct {
	mu      sync.Mutex
	open    map[config.S3]*s3.Bucket
	cluster string // UID of the namespace kube-system, once it is known
}

// bucket opens a bucket, or returns it if it was opened before with the same settings.
func (s *server) bucket(ctx context.Context, c config.S3) (*s3.Bucket, error) {
	s.buckets.mu.Lock()
	b := s.buckets.open[c]
	s.buckets.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b, err := s3.Open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("failed to initialize S3 client: %w", err)
	}
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	if s.buckets.open == nil || len(s.buckets.open) >= maxBuckets {
		s.buckets.open = map[config.S3]*s3.Bucket{}
	}
	s.buckets.open[c] = b
	return b, nil
}

// origin is what a bucket keeps of snapshots of this server. The cluster's UID is empty if the API does not answer.
func (s *server) origin(ctx context.Context) s3.Origin {
	o := s3.Origin{Node: s.NodeName, TokenHash: s.tokenHash()}
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	if s.buckets.cluster == "" {
		if f, err := s.snapshotClients(); err == nil {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if n, err := f.core.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{}); err == nil {
				s.buckets.cluster = string(n.UID)
			}
		}
	}
	o.Cluster = s.buckets.cluster
	return o
}

// upload copies a snapshot to the bucket of the settings and deletes what is too much there. What fails is logged, and told of by an
// ETCDSnapshotFile: the snapshot itself has been taken.
func (s *server) upload(ctx context.Context, set snapshotSettings, file snapshot.File) (out snapshot.Result) {
	b, err := s.bucket(ctx, *set.s3)
	if err != nil {
		s.log.Warn("Cannot copy a snapshot to S3", "bucket", set.s3, "error", err)
		s.snapshotFailed(s3.Failed(file, *set.s3, err))
		return out
	}
	origin := s.origin(ctx)
	if copied, err := b.Upload(ctx, file, origin); err != nil {
		s.log.Error("Cannot copy a snapshot to S3", "bucket", set.s3, "error", err)
		s.snapshotFailed(copied)
	} else {
		s.log.Info("Copied a snapshot to S3", "location", copied.Location, "bytes", copied.Size)
		out.Created = append(out.Created, copied.Name)
		if err := b.UploadMetadata(ctx, set.folder, file.Name, origin); err != nil {
			s.log.Warn("Cannot copy the metadata of a snapshot to S3", "location", copied.Location, "error", err)
		}
	}
	// A bucket that is full may take the next one if the oldest goes.
	gone, err := b.Prune(ctx, set.name)
	if err != nil {
		s.log.Warn("Cannot delete old snapshots in S3", "bucket", set.s3, "error", err)
	}
	out.Deleted = gone
	return out
}

// deleteSnapshots deletes snapshots in the folder and in the bucket.
func (s *server) deleteSnapshots(ctx context.Context, set snapshotSettings, names []string) (out snapshot.Result, err error) {
	if out.Deleted, err = set.folder.Delete(names...); err != nil || set.s3 == nil {
		return out, err
	}
	b, err := s.bucket(ctx, *set.s3)
	if err != nil {
		return out, err
	}
	for _, name := range names {
		was, err := b.Delete(ctx, name)
		if err != nil {
			s.log.Error("Cannot delete a snapshot in S3", "name", name, "error", err)
		}
		if was {
			out.Deleted = append(out.Deleted, name)
		}
	}
	return out, nil
}

// pruneSnapshots deletes the oldest snapshots in the folder and in the bucket.
func (s *server) pruneSnapshots(ctx context.Context, set snapshotSettings) (out snapshot.Result, err error) {
	if out.Deleted, err = set.folder.Prune(set.name, set.retention); err != nil || set.s3 == nil {
		return out, err
	}
	b, err := s.bucket(ctx, *set.s3)
	if err != nil {
		return out, err
	}
	gone, err := b.Prune(ctx, set.name)
	if err != nil {
		s.log.Error("Cannot delete old snapshots in S3", "bucket", set.s3, "error", err)
	}
	out.Deleted = append(out.Deleted, gone...)
	return out, nil
}

// download fetches the snapshot to restore from the bucket and returns the file.
func (s *server) download(ctx context.Context) (string, error) {
	b, err := s.bucket(ctx, *s.S3)
	if err != nil {
		return "", err
	}
	s.log.Info("Retrieving a snapshot from S3", "name", s.ClusterResetRestorePath, "bucket", s.S3)
	return b.Download(ctx, s.ClusterResetRestorePath, s.scheduled().folder)
}
