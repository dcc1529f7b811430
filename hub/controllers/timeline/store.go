package timeline

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// DataKey is the key of the ConfigMap that holds the Record.
const DataKey = "timeline"

// newRecord is how far back transitions are told for a cluster that has no record: those of a new cluster, and of one that is taken over
// not all that ever happened to it.
const newRecord = 10 * time.Minute

// read returns the record; a new one where there is none, or where nobody can read it.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey, now time.Time) (*Record, error) {
	configMap := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: rkev1.TimelineName(key.Name)}, configMap)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the timeline of cluster %s: %w", key, err)
	}
	if record, err := Decode(configMap.Data[DataKey]); err == nil {
		return record, nil
	}
	return &Record{Observed: metav1.NewTime(now.Add(-newRecord))}, nil
}

// write writes the record and returns how many bytes it has. The ConfigMap goes with the object that stands for the cluster; once that is
// being deleted, it is not made any more.
func (r *Reconciler) write(ctx context.Context, key client.ObjectKey, s *scope, record *Record) (int, error) {
	text, err := record.encode()
	if err != nil {
		return 0, err
	}
	top := s.top()
	owner := reference(top)
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: rkev1.TimelineName(key.Name),
			Labels: map[string]string{clusterv1.ClusterNameLabel: key.Name},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID},
			},
		},
		Data: map[string]string{DataKey: text},
	}
	err = r.Client.Update(ctx, configMap, fieldOwner)
	if apierrors.IsNotFound(err) && top.GetDeletionTimestamp().IsZero() {
		err = r.Client.Create(ctx, configMap, fieldOwner)
	}
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("writing the timeline of cluster %s: %w", key, err)
	}
	return len(text), nil
}
