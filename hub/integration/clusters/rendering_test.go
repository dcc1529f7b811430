package clusters

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

const (
	configFile = "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"
	manifests  = "/var/lib/rancher/k3s/server/manifests/rancher/"
	accepted   = "ConfigurationAccepted"
)

var allRoles = []string{"etcd", "control-plane", "worker"}

// file returns the content of a file, and whether the plan writes it.
func file(t *testing.T, plan plans.Plan, path string) (string, bool) {
	t.Helper()
	i := slices.IndexFunc(plan.Files, func(f plans.File) bool { return f.Path == path && f.Action != plans.ActionDelete })
	if i < 0 {
		return "", false
	}
	content, err := base64.StdEncoding.DecodeString(plan.Files[i].Content)
	if err != nil {
		t.Fatal(err)
	}
	return string(content), true
}

func deletes(plan plans.Plan, path string) bool {
	return slices.ContainsFunc(plan.Files, func(f plans.File) bool { return f.Path == path && f.Action == plans.ActionDelete })
}

// awaitSpec waits until a change of the Cluster has reached the RKEControlPlane.
func awaitSpec(r *testenv.FakeCluster, done func(rkev1.RKEControlPlaneSpec) bool) {
	r.T.Helper()
	controlPlane := r.ControlPlane()
	r.Wait("the change to reach the RKEControlPlane", func() error {
		if err := env.Client.Get(r.T.Context(), client.ObjectKeyFromObject(controlPlane), controlPlane); err != nil {
			return err
		}
		if !done(controlPlane.Spec) {
			return fmt.Errorf("its specification is %+v", controlPlane.Spec)
		}
		return nil
	})
}

// TestMachineFile: a file of the Cluster is written to the machine, and deleted once the Cluster does not have it any more.
func TestMachineFile(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "files", nil)
	env.Create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: "files",
			Annotations: map[string]string{rkev1.AuthorizedObjectAnnotation: "files"}},
		Data: map[string]string{"motd": "hello\n"},
	})
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
			{ConfigMap: &rkev1.K8sObjectFileSource{Name: "files", Items: []rkev1.KeyToPath{{Key: "motd", Path: "/etc/motd", Dynamic: true}}}},
		}}}
	})
	awaitSpec(r, func(spec rkev1.RKEControlPlaneSpec) bool { return len(spec.MachineSelectorFiles) > 0 })
	m := r.Register("one", "10.0.0.1", allRoles...)
	plan, checksum := m.AwaitPlan("")
	if got, _ := file(t, plan, "/etc/motd"); got != "hello\n" {
		t.Fatalf("the file holds %q", got)
	}
	if _, ok := file(t, plan, manifests+"k3s-etcd-snapshot-extra-metadata.yaml"); !ok {
		t.Error("snapshots carry nothing of the specification")
	}
	m.Take()
	m.Succeed()

	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachineSelectorFiles = nil })
	for !deletes(plan, "/etc/motd") { // the specification's copy for snapshots may come in a plan of its own
		plan, checksum = m.AwaitPlan(checksum)
		m.Apply(checksum)
	}
}

// TestSecretOfAnotherNamespace: a Secret of another namespace is used only by the clusters that it names.
func TestSecretOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	elsewhere := env.Namespace(t)
	credential := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "cc"},
		StringData: map[string]string{"s3credentialConfig-accessKey": "key", "s3credentialConfig-secretKey": "hush"},
	}
	env.Create(t, credential)
	r := env.NewCluster(t, "backup", nil)
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{CloudCredentialName: elsewhere + ":cc", Bucket: "b"}}
	})
	whole := r.Cluster.Namespace + "/backup"
	m := r.Register("one", "10.0.0.1", allRoles...)
	r.AwaitCondition(r.ControlPlane(), accepted, metav1.ConditionFalse, "PlanInvalid",
		fmt.Sprintf("spec.rkeConfig.etcd.s3.cloudCredentialName: Secret %q is not authorized for this cluster; add %q to its annotation %s", "cc",
			whole, rkev1.AuthorizedSecretAnnotation))

	testenv.Change(t, env, credential, func(s *corev1.Secret) { s.Annotations = map[string]string{rkev1.AuthorizedSecretAnnotation: whole} })
	r.AwaitCondition(r.ControlPlane(), accepted, metav1.ConditionTrue, "Accepted", "")
	r.Wait("the bucket to be in the plan", func() error {
		plan, err := plans.Decode(m.Secret().Data[plans.KeyPlan])
		if err != nil {
			return err
		}
		if config, _ := file(t, plan, configFile); !strings.Contains(config, `"etcd-s3-secret-key": "hush"`) {
			return errors.New("the plan has no credential")
		}
		return nil
	})
}

// TestReleaseData: an argument reaches the machines once the release data has it.
func TestReleaseData(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "released", map[string]any{"later": []any{"a"}, "much-later": true})
	r.Register("one", "10.0.0.1", allRoles...)
	r.AwaitCondition(r.ControlPlane(), accepted, metav1.ConditionFalse, "ArgumentsLeftOut",
		"spec.rkeConfig.machineGlobalConfig.much-later: is no argument of k3s v1.36.3+k3s1 and was left out")
	if err := writeReleaseData(`{"later": {"type": "array"}, "much-later": {"type": "boolean"}}`); err != nil {
		t.Fatal(err)
	}
	r.AwaitCondition(r.ControlPlane(), accepted, metav1.ConditionTrue, "Accepted", "")
}

// TestUnknownVersion: with a version that the release data does not have, arguments are passed on unchecked.
func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "future", map[string]any{"brand-new": int64(7)})
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) { c.Spec.KubernetesVersion = "v1.77.0+k3s1" })
	awaitSpec(r, func(spec rkev1.RKEControlPlaneSpec) bool { return spec.KubernetesVersion == "v1.77.0+k3s1" })
	plan, _ := r.Register("one", "10.0.0.1", allRoles...).AwaitPlan("")
	if config, _ := file(t, plan, configFile); !strings.Contains(config, `"brand-new": 7`) {
		t.Errorf("the configuration is %s", config)
	}
	r.AwaitCondition(r.ControlPlane(), accepted, metav1.ConditionTrue, "AcceptedWithWarnings",
		`spec.kubernetesVersion: "v1.77.0+k3s1" is not in the release data; it is taken for a release like v1.36.3+k3s1; `+
			"spec.rkeConfig.machineGlobalConfig.brand-new: is no known argument of k3s v1.77.0+k3s1 and was handed on as it is")
}

// TestBootstrapSecrets: a cluster that needs Secrets before anything else gets them first, and the rest after it has started.
func TestBootstrapSecrets(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "early", nil)
	env.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: "cloud", Annotations: map[string]string{
			rkev1.SyncBootstrapAnnotation: "true", rkev1.AuthorizedObjectAnnotation: "early",
			rkev1.SyncTargetNamespaceAnnotation: "kube-system", rkev1.SyncTargetNameAnnotation: "cloud-config",
		}},
		StringData: map[string]string{"k": "v"},
	})
	m := r.Register("one", "10.0.0.1", allRoles...)
	var plan plans.Plan
	var checksum string
	for content := ""; !strings.Contains(content, "name: cloud-config"); { // the cache may have seen the machine first
		plan, checksum = m.AwaitPlan(checksum)
		content, _ = file(t, plan, manifests+"bootstrap-secrets.yaml")
	}
	if _, ok := file(t, plan, manifests+"addons.yaml"); ok {
		t.Error("the other manifests came along")
	}
	m.Apply(checksum)
	for !deletes(plan, manifests+"bootstrap-secrets.yaml") {
		plan, checksum = m.AwaitPlan(checksum)
	}
	if _, ok := file(t, plan, manifests+"addons.yaml"); !ok {
		t.Error("the other manifests did not follow")
	}
}
