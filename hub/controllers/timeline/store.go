package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// newRecordPeriod is how far back transitions have Events for a cluster without a record: those of a new cluster, and of one that was
// adopted not all of its life.
const newRecordPeriod = 10 * time.Minute

// read returns the record and the digests of its parts; a new one where there is none, or one that cannot be decoded.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey, now time.Time) (*timelines.Record, map[int]timelines.Digest, error) {
	record, digests, err := timelines.Read(ctx, r.Live, key)
	if apierrors.IsNotFound(err) || timelines.IsCorrupt(err) {
		return &timelines.Record{Observed: metav1.NewTime(now.Add(-newRecordPeriod))}, map[int]timelines.Digest{}, nil
	}
	return record, digests, err
}

// write writes the parts that have changed, or part 0 if only Observed has. Part 0 comes last: it says how many others there are.
func (r *Reconciler) write(ctx context.Context, key client.ObjectKey, s *scope, m *clusterState) error {
	parts, digests, size, err := m.record.Encode()
	if err != nil {
		return err
	}
	written := false
	for i, part := range slices.Backward(parts) {
		if digests[i] == m.written[i] && (i > 0 || written) {
			continue
		}
		if err := r.writePart(ctx, key, s, part); err != nil {
			return err
		}
		written = true
	}
	m.written, m.size = digests, size
	return nil
}

// writePart writes a ConfigMap. It is owned by the Cluster that the user wrote; once that is being deleted, none is created any more.
func (r *Reconciler) writePart(ctx context.Context, key client.ObjectKey, s *scope, p timelines.Part) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding the timeline: %w", err)
	}
	owner := reference(s.clusterObject())
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: rkev1.TimelinePartName(key.Name, p.Part),
			Labels: map[string]string{clusterv1.ClusterNameLabel: key.Name},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID},
			},
		},
		Data: map[string]string{timelines.DataKey: string(raw)},
	}
	err = r.Client.Update(ctx, configMap, fieldOwner)
	if apierrors.IsNotFound(err) && s.clusterObject().GetDeletionTimestamp().IsZero() {
		err = r.Client.Create(ctx, configMap, fieldOwner)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the timeline of cluster %s: %w", key, err)
	}
	return nil
}
