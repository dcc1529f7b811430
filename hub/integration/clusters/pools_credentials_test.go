package clusters

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestSecretWithoutAccess: who may write a Cluster cannot get a Secret onto its machines that they may not read.
func TestSecretWithoutAccess(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	env.Create(t,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "writer"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"provisioning.cattle.io"}, Resources: []string{"clusters"}, Verbs: []string{"*"}},
			{APIGroups: []string{"rke.cattle.io"}, Resources: []string{"rkecontrolplanes"}, Verbs: []string{"*"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"mine"}, Verbs: []string{"get"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "writer"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "writer"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "writer-" + namespace}}})
	config := rest.CopyConfig(env.Config)
	config.Impersonate.UserName = "writer-" + namespace
	writer, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	etcd := func(credential string) *rkev1.ETCD {
		return &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{CloudCredentialName: credential}}
	}
	cluster := func(credential string) *provisioningv1.Cluster {
		c := newPooled(namespace, "credentials")
		c.Spec.RKEConfig.ETCD = etcd(credential)
		return c
	}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "credentials"}}
	controlPlane.Spec.ETCD = etcd("theirs")

	// The API server takes policies up some time after they are there.
	testenv.Until(t, "the policy to be in force", func() error {
		err := writer.Create(t.Context(), cluster("theirs"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "etcd.s3.cloudCredentialName names the Secret theirs in the namespace "+namespace) {
			return fmt.Errorf("a Cluster with a Secret that its writer may not read: %w", err)
		}
		return nil
	})
	for name, tt := range map[string]struct {
		object client.Object
		denied bool
	}{
		"a Secret elsewhere":              {cluster("elsewhere:mine"), true},
		"a Secret of his own":             {cluster("mine"), false},
		"a Secret of his own, in full":    {cluster(namespace + ":mine"), false},
		"no Secret":                       {cluster(""), false},
		"no configuration of etcd":        {newPooled(namespace, "plain"), false},
		"a control plane without Cluster": {controlPlane, true},
		"a Cluster that was made elsewhere": {&provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "imported"}},
			false},
	} {
		err := writer.Create(t.Context(), tt.object, client.DryRunAll)
		if denied := err != nil; denied != tt.denied {
			t.Errorf("%s: %v", name, err)
		}
	}

	// References that another user has set may stay when a user changes something else.
	theirs := cluster("theirs")
	theirs.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""}
	env.Create(t, theirs)
	testenv.Until(t, "a change of something else to be accepted", func() error {
		env.Get(t, namespace, "credentials", theirs)
		theirs.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: "A", Value: "b"}}
		return writer.Update(t.Context(), theirs)
	})
	if err := writer.Patch(t.Context(), theirs,
		client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"rkeConfig":{"etcd":{"s3":{"cloudCredentialName":"others"}}}}}`))); err == nil {
		t.Error("another Secret that he may not read was accepted")
	}
}
