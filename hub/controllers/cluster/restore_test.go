package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/clusterspec"
)

func clusterWith(version, manifest string, pools ...string) *provisioningv1.Cluster {
	config := &provisioningv1.RKEConfig{}
	config.AdditionalManifest = manifest
	for _, name := range pools {
		config.MachinePools = append(config.MachinePools, provisioningv1.RKEMachinePool{Name: name})
	}
	return &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: provisioningv1.ClusterSpec{KubernetesVersion: version,
		RKEConfig: config}}
}

func snapshotOf(t *testing.T, cluster *provisioningv1.Cluster) *rkev1.ETCDSnapshot {
	encoded, err := clusterspec.Encode(cluster.Spec)
	if err != nil {
		t.Fatal(err)
	}
	metadata, _ := json.Marshal(map[string]string{clusterspec.MetadataKey: encoded})
	return &rkev1.ETCDSnapshot{Spec: rkev1.ETCDSnapshotSpec{ClusterName: cluster.Name},
		SnapshotFile: rkev1.ETCDSnapshotFile{Metadata: base64.StdEncoding.EncodeToString(metadata)}}
}

// The version or the whole configuration comes back; machine pools and the request itself stay.
func TestRestoredSpec(t *testing.T) {
	for mode, want := range map[string]*provisioningv1.Cluster{
		restoreKubernetesVersion: clusterWith("v1.35.1+k3s1", "new", "a", "b"), restoreAll: clusterWith("v1.35.1+k3s1", "old", "a", "b"),
	} {
		cluster := clusterWith("v1.36.3+k3s1", "new", "a", "b")
		cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1, RestoreRKEConfig: mode}
		want.Spec.RKEConfig.ETCDSnapshotRestore = cluster.Spec.RKEConfig.ETCDSnapshotRestore
		got, fault := restoredSpec(cluster, snapshotOf(t, clusterWith("v1.35.1+k3s1", "old", "a")), true)
		if fault != nil {
			t.Fatal(fault)
		}
		if diff := cmp.Diff(&want.Spec, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mode, diff)
		}
	}
}

// TestRestoredSpecKeepsSnapshots: snapshots are saved where they are today, and not where the restored configuration had them.
func TestRestoredSpecKeepsSnapshots(t *testing.T) {
	saved := func(endpoint, credential string) *rkev1.ETCD {
		return &rkev1.ETCD{SnapshotRetention: 9, S3: &rkev1.ETCDSnapshotS3{Endpoint: endpoint, CloudCredentialName: credential}}
	}
	for name, before := range map[string]*rkev1.ETCD{"another bucket": saved("old.example.com", "old"), "none": nil} {
		cluster, had := clusterWith("v1.36.3+k3s1", "new"), clusterWith("v1.36.3+k3s1", "old")
		cluster.Spec.RKEConfig.ETCD, had.Spec.RKEConfig.ETCD = saved("new.example.com", "new"), before
		cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1, RestoreRKEConfig: restoreAll}
		got, fault := restoredSpec(cluster, snapshotOf(t, had), true)
		if fault != nil {
			t.Errorf("%s: %+v", name, fault)
			continue
		}
		if diff := cmp.Diff(saved("new.example.com", "new"), got.RKEConfig.ETCD); diff != "" || got.RKEConfig.AdditionalManifest != "old" {
			t.Errorf("%s: the manifest %q, (-want +got):\n%s", name, got.RKEConfig.AdditionalManifest, diff)
		}
	}
}

// TestRestoredSpecInvalid: a configuration that the API server does not accept any more is named in the condition.
func TestRestoredSpecInvalid(t *testing.T) {
	cluster := clusterWith("v1.36.3+k3s1", "new")
	cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1, RestoreRKEConfig: restoreAll}
	snapshot := snapshotOf(t, clusterWith("v1.35.1+k3s1", "old"))
	snapshot.Name = "s"
	refuse := func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return kerrors.NewInvalid(provisioningv1.GroupVersion.WithKind("Cluster").GroupKind(), "c", field.ErrorList{
			field.Invalid(field.NewPath("spec", "a"), "b", "is not allowed")})
	}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme)).
		WithObjects(cluster, snapshot).WithInterceptorFuncs(interceptor.Funcs{Patch: refuse}).Build()
	s := &scope{cluster: cluster}
	err := (&Reconciler{Client: c, Live: c}).restoreSpec(t.Context(), s)
	if err != nil || len(s.invalid) != 1 || s.invalid[0].Reason != "SnapshotInvalid" ||
		!strings.Contains(s.invalid[0].Message, "is not allowed") || s.unread.spec {
		t.Errorf("got %v, %+v", err, s.invalid)
	}
}

func TestRestoredSpecRefuses(t *testing.T) {
	cluster := clusterWith("v1.36.3+k3s1", "new")
	cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1, RestoreRKEConfig: restoreAll}
	other := snapshotOf(t, cluster)
	other.Spec.ClusterName = "d"
	missing := snapshotOf(t, cluster)
	missing.Status.MissingSince = &metav1.Time{Time: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
	for name, c := range map[string]struct {
		snapshot *rkev1.ETCDSnapshot
		found    bool
		text     string
	}{
		"not found":       {&rkev1.ETCDSnapshot{}, false, "does not exist"},
		"another cluster": {other, true, `is of the Cluster "d"`},
		"missing":         {missing, true, "is missing: since 2026-11-01T12:00:00Z"},
		"failed": {&rkev1.ETCDSnapshot{Spec: rkev1.ETCDSnapshotSpec{ClusterName: "c"}, SnapshotFile: rkev1.ETCDSnapshotFile{Status: "failed"}},
			true, "could not be saved"},
		"without metadata": {&rkev1.ETCDSnapshot{Spec: rkev1.ETCDSnapshotSpec{ClusterName: "c"}}, true, "does not hold the configuration"},
		"damaged": {&rkev1.ETCDSnapshot{Spec: rkev1.ETCDSnapshotSpec{ClusterName: "c"},
			SnapshotFile: rkev1.ETCDSnapshotFile{Metadata: "%"}}, true, "decoding the metadata"},
	} {
		if got, fault := restoredSpec(cluster, c.snapshot, c.found); got != nil || fault == nil || !strings.Contains(fault.Message, c.text) {
			t.Errorf("%s: got %v, %v", name, got, fault)
		}
	}
}

// TestRestoredSpecOfUnknownToken: the spec is not changed for a snapshot whose data the cluster cannot read, so that the restore of it is
// refused. A Cluster without tokens has no machines yet.
func TestRestoredSpecOfUnknownToken(t *testing.T) {
	const hash = "2cf24dba5fb0" // of "hello", as k3s writes it
	for name, tc := range map[string]struct {
		hash, token string
		refused     bool
	}{
		"the cluster's": {hash: hash, token: "hello"}, "another cluster's": {hash: hash, token: "other", refused: true},
		"not known": {token: "other"}, "no tokens yet": {hash: hash},
	} {
		cluster := clusterWith("v1.36.3+k3s1", "new")
		cluster.Namespace = "fleet"
		cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1,
			RestoreRKEConfig: restoreKubernetesVersion}
		snapshot := snapshotOf(t, clusterWith("v1.35.1+k3s1", "old"))
		snapshot.Namespace, snapshot.Name = "fleet", "s"
		if tc.hash != "" {
			snapshot.Annotations = map[string]string{rkev1.SnapshotTokenHashAnnotation: tc.hash}
		}
		scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme, corev1.AddToScheme)
		builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, snapshot)
		if tc.token != "" {
			builder.WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c-rke-state"},
				Data: map[string][]byte{"serverToken": []byte(tc.token)}})
		}
		s := restoreStored(t, builder.Build(), cluster)
		refused := len(s.invalid) == 1 && s.invalid[0].Reason == "SnapshotInvalid" &&
			strings.Contains(s.invalid[0].Message, "Secret c-rke-state does not have")
		if restored := cluster.Spec.KubernetesVersion == "v1.35.1+k3s1"; refused != tc.refused || restored == tc.refused {
			t.Errorf("%s: restored: %t, refused: %+v", name, restored, s.invalid)
		}
	}
}

// restoreStored reconciles the restore of a Cluster that c has, and reads the Cluster again.
func restoreStored(t *testing.T, c client.WithWatch, cluster *provisioningv1.Cluster) *scope {
	t.Helper()
	s := &scope{cluster: &provisioningv1.Cluster{}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), s.cluster); err != nil {
		t.Fatal(err)
	}
	if err := (&Reconciler{Client: c, Live: c}).restoreSpec(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRestoredSpecOfAnotherBucket: the spec is not changed for a snapshot that the machines could not download.
func TestRestoredSpecOfAnotherBucket(t *testing.T) {
	s3 := func(endpoint string) *rkev1.ETCD {
		return &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Endpoint: endpoint, Bucket: "b"}}
	}
	argument := rkev1.GenericMap{Data: map[string]any{"etcd-s3-bucket": "b"}}
	for name, tc := range map[string]struct {
		etcd    *rkev1.ETCD
		args    rkev1.GenericMap
		local   bool
		refused string
	}{
		"the same endpoint":              {etcd: s3("s3.example.com")},
		"another endpoint":               {etcd: s3("old.example.com"), refused: "if the bucket has moved there, delete the ETCDSnapshotFiles"},
		"the endpoint of the credential": {etcd: s3("")},
		"no bucket":                      {etcd: &rkev1.ETCD{}, refused: "the Cluster has no bucket"},
		"nothing of etcd":                {refused: "the Cluster has no bucket"},
		"in arguments":                   {args: argument},
		"on a machine":                   {local: true},
	} {
		cluster := clusterWith("v1.36.3+k3s1", "new")
		cluster.Namespace, cluster.Spec.RKEConfig.ETCD, cluster.Spec.RKEConfig.MachineGlobalConfig = "fleet", tc.etcd, tc.args
		cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1,
			RestoreRKEConfig: restoreKubernetesVersion}
		snapshot := snapshotOf(t, clusterWith("v1.35.1+k3s1", "old"))
		snapshot.Namespace, snapshot.Name = "fleet", "s"
		if !tc.local {
			snapshot.SnapshotFile.S3 = &rkev1.ETCDSnapshotS3{Endpoint: "s3.example.com", Bucket: "b"}
		}
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme)).
			WithObjects(cluster, snapshot).Build()
		s := restoreStored(t, c, cluster)
		refused := len(s.invalid) == 1 && s.invalid[0].Reason == "SnapshotInvalid" && strings.Contains(s.invalid[0].Message, tc.refused)
		if restored := cluster.Spec.KubernetesVersion == "v1.35.1+k3s1"; refused != (tc.refused != "") || restored == refused {
			t.Errorf("%s: restored: %t, refused: %+v", name, restored, s.invalid)
		}
	}
}

// TestTokensToCluster: a restore that was refused goes on when its token is in the Secret.
func TestTokensToCluster(t *testing.T) {
	secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c-rke-state",
		Labels: map[string]string{rkev1.ClusterNameLabel: "c"}}}
	got := (&Reconciler{}).secretToClusters(t.Context(), secret)
	if len(got) != 1 || got[0].NamespacedName != (client.ObjectKey{Namespace: "fleet", Name: "c"}) {
		t.Errorf("got %v", got)
	}
}

// TestRestoredReferences: a snapshot, which whoever administers the cluster may have written, gives nobody a Secret that he may not read.
func TestRestoredReferences(t *testing.T) {
	with := func(secret string) *provisioningv1.Cluster {
		cluster := clusterWith("v1.36.3+k3s1", "new")
		cluster.Spec.RKEConfig.Registries = &rkev1.Registry{Configs: map[string]rkev1.RegistryConfig{
			"registry.example.com": {AuthConfigSecretName: secret}}}
		return cluster
	}
	for name, test := range map[string]struct {
		present, restored string
		refused           bool
	}{
		"the same":  {present: "mine", restored: "mine"},
		"one less":  {present: "mine"},
		"another":   {present: "mine", restored: "yours", refused: true},
		"the first": {restored: "yours", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := with(test.present)
			cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1, RestoreRKEConfig: restoreAll}
			_, fault := restoredSpec(cluster, snapshotOf(t, with(test.restored)), true)
			if (fault != nil) != test.refused || fault != nil && !strings.Contains(fault.Message, `Secret "yours"`) {
				t.Errorf("got %+v", fault)
			}
			cluster.Spec.RKEConfig.ETCDSnapshotRestore.RestoreRKEConfig = restoreKubernetesVersion
			if _, fault := restoredSpec(cluster, snapshotOf(t, with(test.restored)), true); fault != nil {
				t.Errorf("the version alone: got %+v", fault)
			}
		})
	}
}

// TestSnapshotToCluster: a Cluster whose restore waits for a snapshot is reconciled when that is created or changes, and no other one is.
func TestSnapshotToCluster(t *testing.T) {
	cluster := clusterWith("v1.36.3+k3s1", "")
	cluster.Namespace = "fleet"
	cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1, RestoreRKEConfig: restoreAll}
	other := clusterWith("v1.36.3+k3s1", "")
	other.Namespace, other.Name = "fleet", "other"
	imported := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "imported"}}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, provisioningv1.AddToScheme)).
		WithObjects(cluster, other, imported).Build()}
	for _, tc := range []struct {
		namespace, name, cluster string
		want                     int
	}{
		{"fleet", "s", "c", 1}, {"fleet", "t", "c", 0}, {"else", "s", "c", 0}, {"fleet", "s", "other", 0}, {"fleet", "s", "imported", 0},
		{"fleet", "s", "gone", 0}, {"fleet", "s", "", 0},
	} {
		snapshot := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: tc.name},
			Spec: rkev1.ETCDSnapshotSpec{ClusterName: tc.cluster}}
		got := r.snapshotToCluster(t.Context(), snapshot)
		if len(got) != tc.want || tc.want > 0 && got[0].NamespacedName != client.ObjectKeyFromObject(cluster) {
			t.Errorf("%+v: got %v", tc, got)
		}
	}
}

// TestSnapshotChanged: no work is done for changes of the status of a snapshot.
func TestSnapshotChanged(t *testing.T) {
	before := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "s", Generation: 1}}
	for name, tc := range map[string]struct {
		change func(*rkev1.ETCDSnapshot)
		want   bool
	}{
		"its status":     {change: func(s *rkev1.ETCDSnapshot) { s.Status.Missing = true }},
		"a label":        {change: func(s *rkev1.ETCDSnapshot) { s.Labels = map[string]string{"a": "b"} }},
		"an annotation":  {change: func(s *rkev1.ETCDSnapshot) { s.Annotations = map[string]string{"a": "b"} }, want: true},
		"its generation": {change: func(s *rkev1.ETCDSnapshot) { s.Generation++ }, want: true},
	} {
		after := before.DeepCopy()
		after.ResourceVersion = "2"
		tc.change(after)
		if got := snapshotChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	missing := before.DeepCopy()
	missing.Status.MissingSince = &metav1.Time{}
	if !snapshotChanged.Update(event.UpdateEvent{ObjectOld: missing, ObjectNew: before}) {
		t.Error("a snapshot that is listed again is not passed")
	}
	if !snapshotChanged.Create(event.CreateEvent{Object: before}) || snapshotChanged.Delete(event.DeleteEvent{Object: before}) {
		t.Error("creations are passed, and deletions are not")
	}
}
