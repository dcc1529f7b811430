package rkecontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// namespaceOf holds the Secrets of a namespace as the manager's cache does, and counts the copies that it makes.
type namespaceOf struct {
	client.Reader
	secrets []corev1.Secret
	copies  int
}

func (n *namespaceOf) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	for _, secret := range n.secrets {
		if !ptr.Deref(options.UnsafeDisableDeepCopy, false) {
			n.copies++
			secret = *secret.DeepCopy()
		}
		list.(*corev1.SecretList).Items = append(list.(*corev1.SecretList).Items, secret)
	}
	return nil
}

func (n *namespaceOf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for i := range n.secrets {
		if n.secrets[i].Name == key.Name {
			n.secrets[i].DeepCopyInto(into.(*corev1.Secret))
		}
	}
	return nil
}

// TestReadBootstrapSecrets: until a cluster has started, each reconcile looks through all Secrets of the namespace, of every cluster in it,
// and copies none but those that it takes.
func TestReadBootstrapSecrets(t *testing.T) {
	in := &namespaceOf{}
	for i := range 1000 {
		in.secrets = append(in.secrets, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: fmt.Sprint("other-", i)}})
	}
	in.secrets = append(in.secrets, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cloud",
		Annotations: map[string]string{
			rkev1.SyncBootstrapAnnotation: "true", rkev1.AuthorizedObjectAnnotation: "c", rkev1.SyncTargetNamespaceAnnotation: "kube-system",
		}}, Data: map[string][]byte{"key": []byte("value")}})
	r := &Reconciler{Cache: in}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}},
		cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}}
	found, err := r.readBootstrapSecrets(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].Namespace != "kube-system" || found[0].Name != "cloud" || string(found[0].Data["key"]) != "value" {
		t.Errorf("got %+v", found)
	}
	if in.copies != 0 {
		t.Errorf("%d Secrets were copied", in.copies)
	}
}

// A Secret is given to a cluster before it starts only if it says so itself, and names the cluster.
func TestIsBootstrapSecret(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cni",
		Annotations: map[string]string{rkev1.AuthorizedObjectAnnotation: "a, b"}}}
	if isBootstrapSecret(secret, "b") {
		t.Error("a Secret is given away that does not say so")
	}
	secret.Annotations[rkev1.SyncBootstrapAnnotation] = "true"
	if !isBootstrapSecret(secret, "b") || isBootstrapSecret(secret, "c") {
		t.Error("it is given to other clusters than those that it names")
	}
}

// TestForbidden: no plan contains the keys and tokens of a cluster, by whatever type they were restored, and however Cluster and
// RKEControlPlane are named.
func TestForbidden(t *testing.T) {
	long := strings.Repeat("a", 60)
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	r := &Reconciler{Cache: fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme, clusterv1.AddToScheme)).WithObjects(
		&clusterv1.Cluster{ObjectMeta: meta("fleet", "demo")}, &rkev1.RKEControlPlane{ObjectMeta: meta("fleet", "plane")},
		&rkev1.RKEControlPlane{ObjectMeta: meta("fleet", long)}, &rkev1.RKEControlPlane{ObjectMeta: meta("else", "other")}).Build()}
	for name, want := range map[string]string{
		"plane-rke-state":                       "the tokens of RKEControlPlane plane",
		rkev1.ClusterStateSecretName(long):      "the tokens of RKEControlPlane " + long,
		"demo-rke-state":                        "a key or kubeconfig of Cluster demo",
		"demo-ca":                               "a key or kubeconfig of Cluster demo",
		"other-rke-state":                       "",
		strings.Repeat("a", 57) + "-" + "12345": "",
		"files":                                 "",
	} {
		secret := &corev1.Secret{ObjectMeta: meta("fleet", name), Type: corev1.SecretTypeOpaque}
		got, err := r.forbidden(t.Context(), secret)
		if err != nil || (got == "") != (want == "") || !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestReferringTo: a change of a ConfigMap reconciles the clusters of its namespace whose specification names it, and no others.
func TestReferringTo(t *testing.T) {
	controlPlane := func(namespace, name, config string) *rkev1.RKEControlPlane {
		c := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		c.Spec.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
			{ConfigMap: &rkev1.K8sObjectFileSource{Name: config}},
		}}}
		return c
	}
	api := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme)).
		WithObjects(controlPlane("fleet", "one", "files"), controlPlane("fleet", "two", "others"), controlPlane("else", "three", "files")).
		WithIndex(&rkev1.RKEControlPlane{}, indexReferences, func(o client.Object) []string { return referenceKeys(o.(*rkev1.RKEControlPlane)) }).
		Build()
	r := &Reconciler{Client: api}
	requests := r.configMapToControlPlanes(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "files"}})
	want := []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: "fleet", Name: "one"}}}
	if !slices.Equal(requests, want) {
		t.Errorf("got %v, want %v", requests, want)
	}
	elsewhere := controlPlane("fleet", "four", "")
	elsewhere.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{CloudCredentialName: "keys:s3"}}
	if keys := referenceKeys(elsewhere); len(keys) != 0 {
		t.Errorf("what is in another namespace is in the index: %v", keys)
	}
}
