package clusters

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// newMovedSnapshot creates an ETCDSnapshot of the cluster, as the hub does for a file that the cluster lists.
func newMovedSnapshot(t *testing.T) *rkev1.ETCDSnapshot {
	t.Helper()
	owner := &clusterv1.Cluster{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: movedName}, owner); err != nil {
		t.Fatal(err)
	}
	snapshot := &rkev1.ETCDSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: movedNamespace, Name: movedName + "-before",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: owner.Name, UID: owner.UID,
			}},
		},
		Spec:         rkev1.ETCDSnapshotSpec{ClusterName: movedName},
		SnapshotFile: rkev1.ETCDSnapshotFile{Name: "before", NodeName: "one", Location: "file:///snapshots/before", Status: "successful"},
	}
	if err := env.Client.Create(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// checkMovedSnapshot checks that a snapshot can be restored on the hub that the cluster came to: it is there, and belongs to the cluster.
func checkMovedSnapshot(ctx context.Context, target client.Client, before *rkev1.ETCDSnapshot) error {
	cluster, moved := &clusterv1.Cluster{}, &rkev1.ETCDSnapshot{}
	if err := target.Get(ctx, client.ObjectKey{Namespace: movedNamespace, Name: movedName}, cluster); err != nil {
		return err
	}
	if err := target.Get(ctx, client.ObjectKeyFromObject(before), moved); err != nil {
		return err
	}
	if moved.Spec != before.Spec || moved.SnapshotFile != before.SnapshotFile {
		return fmt.Errorf("the ETCDSnapshot is %+v, was %+v", moved.SnapshotFile, before.SnapshotFile)
	}
	if len(moved.OwnerReferences) != 1 || moved.OwnerReferences[0].UID != cluster.UID {
		return fmt.Errorf("the ETCDSnapshot belongs to %+v", moved.OwnerReferences)
	}
	return nil
}

// newMovedCredentials creates what agents and users are given by a hub. Its key signs them, so they are of no use elsewhere.
func newMovedCredentials(t *testing.T, management string) {
	t.Helper()
	owner := &managementv3.Cluster{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Name: management}, owner); err != nil {
		t.Fatal(err)
	}
	owners := []metav1.OwnerReference{{
		APIVersion: managementv3.GroupVersion.String(), Kind: "Cluster", Name: owner.Name, UID: owner.UID,
	}}
	for _, object := range []client.Object{
		&managementv3.Token{ObjectMeta: metav1.ObjectMeta{Name: "token-" + movedName, OwnerReferences: owners},
			Spec: managementv3.TokenSpec{
				ClusterName: management, Hash: strings.Repeat("0", 64), User: managementv3.TokenUser{Username: "ada"},
				ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)),
			}},
		&managementv3.TunnelAgent{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: "agent"},
			Spec: managementv3.TunnelAgentSpec{ClusterName: management}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: "credential"}},
	} {
		if err := env.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// checkLeftBehind checks that none of the credentials came along, under whatever name.
func checkLeftBehind(t *testing.T, target client.Client, management string) {
	t.Helper()
	for _, key := range []struct {
		object client.Object
		name   client.ObjectKey
	}{
		{&managementv3.Token{}, client.ObjectKey{Name: "token-" + movedName}},
		{&managementv3.TunnelAgent{}, client.ObjectKey{Namespace: management, Name: "agent"}},
		{&corev1.Secret{}, client.ObjectKey{Namespace: management, Name: "credential"}},
	} {
		if err := target.Get(t.Context(), key.name, key.object); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		} else if err == nil {
			t.Errorf("%T %s was moved", key.object, key.name)
		}
	}
}

// setConfigGeneration makes the cluster one that Rancher has restored twice, which the restart stamps of its machines contain.
func setConfigGeneration(t *testing.T) {
	t.Helper()
	controlPlane := &rkev1.RKEControlPlane{}
	testenv.Until(t, "the RKEControlPlane", func() error {
		return env.Client.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: movedName}, controlPlane)
	})
	before := controlPlane.DeepCopy()
	controlPlane.Status.ConfigGeneration = 2
	if err := env.Client.Status().Patch(t.Context(), controlPlane, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
