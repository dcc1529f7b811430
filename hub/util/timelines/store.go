package timelines

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
)

// Read returns the stored timeline of a cluster and the digests of its parts. The error is NotFound where there is none, and IsCorrupt
// where it cannot be decoded.
func Read(ctx context.Context, from client.Reader, cluster client.ObjectKey) (*Record, map[int]Digest, error) {
	collector := NewCollector(cluster)
	if err := collector.Read(ctx, from); err != nil {
		return nil, nil, err
	}
	record := collector.Record()
	_, digests, _, err := record.Encode()
	record.rebalance()
	return record, digests, err
}

// Delete deletes the timeline of a cluster, up to a part that cannot be decoded; what is left has the Cluster as its owner. live reads past
// the cache.
func Delete(ctx context.Context, c client.Client, live client.Reader, cluster client.ObjectKey) error {
	collector := NewCollector(cluster)
	if err := collector.Read(ctx, live); err != nil && !IsCorrupt(err) {
		return client.IgnoreNotFound(err)
	}
	for i := range collector.read {
		configMap := &corev1.ConfigMap{}
		configMap.Namespace, configMap.Name = cluster.Namespace, rkev1.TimelinePartName(cluster.Name, i)
		if err := objects.Delete(ctx, c, configMap); err != nil {
			return err
		}
	}
	return nil
}

// corruptError is returned for a ConfigMap that cannot be decoded.
type corruptError struct{ error }

func (e corruptError) Unwrap() error { return e.error }

// IsCorrupt reports whether an error is of a timeline that cannot be decoded.
func IsCorrupt(err error) bool { return errors.As(err, new(corruptError)) }

// rebalance moves subjects out of a part that has too many, as earlier hubs wrote it.
func (r *Record) rebalance() {
	counts := map[int]int{}
	for i := range r.Subjects {
		s := &r.Subjects[i]
		if counts[s.part]++; counts[s.part] > subjectsPerPart {
			s.part = r.freePart()
		}
	}
}
