package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	machine := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	mustCreate(t, config, machine)

	if err := env.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, config, machine} {
		env.Gone(t, object)
	}
}

// A custom resource owns a built-in kind here and the other way round, since the garbage collector learns of new kinds later.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	owner := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
	mustCreate(t, owner)
	middle := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "middle",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: rkev1.GroupVersion.String(), Kind: "CustomMachine", Name: owner.Name,
			UID: owner.UID}},
	}}
	mustCreate(t, middle)
	last := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "last",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: middle.Name, UID: middle.UID}},
	}}
	mustCreate(t, last)

	if err := env.Client.Delete(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	eventually(t, "owned objects to go", func() error {
		return errors.Join(gone(t.Context(), owner), gone(t.Context(), middle), gone(t.Context(), last))
	})
}

// A ResourceQuota, which would limit nothing, is refused.
func TestNoResourceQuotas(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "few"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/clusters.provisioning.cattle.io": resource.MustParse("1")},
	}}
	quotas := kubernetes.NewForConfigOrDie(env.Config).CoreV1().ResourceQuotas(namespace)
	if _, err := quotas.Create(t.Context(), quota, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestServiceAccountTokenSecret(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine"}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "machine-token",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account.Name},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"},
			ResourceNames: []string{"mine"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
	}
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"}}
	mustCreate(t, account, secret, role, binding, mine)

	eventually(t, "the Secret to get a token", func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			return err
		}
		if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errors.New("the Secret has no token")
		}
		return nil
	})

	config := rest.AnonymousClientConfig(env.Config)
	config.BearerToken = string(secret.Data[corev1.ServiceAccountTokenKey])
	config.CAFile, config.CAData = "", secret.Data[corev1.ServiceAccountRootCAKey]
	machine, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the token to be accepted", func() error {
		_, err := machine.CoreV1().Secrets(namespace).Get(t.Context(), mine.Name, metav1.GetOptions{})
		return err
	})
	if _, err := machine.CoreV1().Secrets(namespace).Get(t.Context(), secret.Name, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("reading another Secret: got error %v, want forbidden", err)
	}
	review, err := machine.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "system:serviceaccount:" + namespace + ":machine"; review.Status.UserInfo.Username != want {
		t.Errorf("the token belongs to %q, want %q", review.Status.UserInfo.Username, want)
	}
}

func TestAnonymousAccess(t *testing.T) {
	t.Parallel()
	anonymous, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(env.Config))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := anonymous.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("got error %v, want unauthorized", err)
	}
}

// The older version is served through the conversion webhook, the newer one defaulted by the admission webhook.
func TestClusterAPIWebhooks(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	old := &clusterv1beta1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old"},
		Spec: clusterv1beta1.ClusterSpec{
			Paused: true,
			InfrastructureRef: &corev1.ObjectReference{APIVersion: rkev1.GroupVersion.String(), Kind: "RKECluster", Name: "old",
				Namespace: namespace},
		},
	}
	mustCreate(t, old)
	cluster := &clusterv1.Cluster{}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(old), cluster); err != nil {
		t.Fatal(err)
	}
	want := clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKECluster", Name: "old"}
	if cluster.Spec.InfrastructureRef != want {
		t.Errorf("infrastructureRef is %v, want %v", cluster.Spec.InfrastructureRef, want)
	}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
		t.Fatal(err)
	}
	if got := old.Spec.InfrastructureRef.APIVersion; got != rkev1.GroupVersion.String() {
		t.Errorf("infrastructureRef came back with apiVersion %q", got)
	}

	bad := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bad"},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: "old",
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
				ClusterName:       "old",
				Bootstrap:         clusterv1.Bootstrap{DataSecretName: new(string)},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "a.b", Kind: "C", Name: "d"},
			}},
		},
	}
	*bad.Spec.Template.Spec.Bootstrap.DataSecretName = "data"
	if err := env.Client.Create(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "must match spec.template.metadata.labels") &&
		!strings.Contains(err.Error(), "selector") {
		t.Errorf("a selector that does not match its template: got error %v, want one about the selector", err)
	}
}

func TestKubectl(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(env.Server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, want 0600", env.Server.Kubeconfig(), info.Mode().Perm())
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		return // the file's content is tested through the clients that everything else uses
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", env.Server.Kubeconfig(), "get", "namespace", "default", "-o",
		"name").CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl: %v\n%s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != "namespace/default" {
		t.Errorf("kubectl printed %q", got)
	}
}

func mustCreate(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := env.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// gone returns nil when the object does not exist.
func gone(ctx context.Context, object client.Object) error {
	err := env.Client.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	switch {
	case err == nil:
		return fmt.Errorf("%T %s is still there", object, object.GetName())
	case apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}
