package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// authorityFiles are the certificate authorities that a plan writes.
func authorityFiles(plan plans.Plan) (paths []string) {
	for _, f := range plan.Files {
		if strings.Contains(f.Path, "/server/tls/") {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// replaceAuthority puts another certificate authority into a Secret, as whoever has rotated those of the cluster does.
func replaceAuthority(r *testenv.FakeCluster, name string) *pki.Pair {
	r.T.Helper()
	pair, err := pki.Issue(pki.Request{CommonName: "rotated", IsCA: true, Lifetime: time.Hour}, nil, time.Now())
	if err != nil {
		r.T.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		r.T.Fatal(err)
	}
	secret := &corev1.Secret{}
	r.Read(name, secret)
	base := secret.DeepCopy()
	secret.Data["tls.crt"], secret.Data["tls.key"] = pair.CertPEM(), key
	if err := env.Client.Patch(r.T.Context(), secret, client.MergeFrom(base)); err != nil {
		r.T.Fatal(err)
	}
	return pair
}

// TestRotatedAuthorities: the server that starts the cluster is given the certificate authorities, and no plan writes them again, also not
// when others are put into their Secrets: the kubeconfig is made with those, and nothing restarts.
func TestRotatedAuthorities(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "rotated", nil)
	controlPlane := r.ControlPlane()
	a := r.Register("a", "127.0.0.2", "etcd", "control-plane", "worker")
	first, checksum := a.AwaitPlan("")
	if len(authorityFiles(first)) != 4 {
		t.Errorf("the first plan has %v", authorityFiles(first))
	}
	a.Take()
	a.Succeed()
	r.AwaitCondition(controlPlane, "Stable", metav1.ConditionTrue, "Stable", "")
	r.AwaitCondition(controlPlane, "KubeconfigReady", metav1.ConditionTrue, "KubeconfigReady", "")
	if now := plans.Checksum(a.Secret().Data[plans.KeyPlan]); now != checksum {
		t.Error("the server is given another plan because the cluster was started")
	}

	server, user := replaceAuthority(r, r.Cluster.Name+"-ca"), replaceAuthority(r, r.Cluster.Name+"-cca")
	next, _ := a.AwaitPlan(checksum)
	if got := authorityFiles(next); len(got) > 0 || render.ImpactOf(first, next) != render.ImpactNone {
		t.Errorf("the next plan has %v and the impact %s", got, render.ImpactOf(first, next))
	}
	a.Take()
	a.Succeed()
	r.Wait("a kubeconfig of the new authorities", func() error {
		secret := &corev1.Secret{}
		r.Read(r.Cluster.Name+"-kubeconfig", secret)
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
		if err != nil {
			return err
		}
		cert, err := pki.ParseCert(config.CertData)
		if err != nil {
			return err
		}
		if string(config.CAData) != string(server.CertPEM()) {
			return errors.New("it trusts the old one")
		}
		return cert.CheckSignatureFrom(user.Cert)
	})

	b := r.Register("b", "127.0.0.3", "etcd", "control-plane")
	joining, _ := b.AwaitPlan("")
	if got := authorityFiles(joining); len(got) > 0 {
		t.Errorf("a server that joins is given %v", got)
	}
	if err := env.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace,
		Name: r.Cluster.Name + "-ca"}}); err != nil {
		t.Fatal(err)
	}
	r.Wait("the loss of a Secret to be noticed", func() error {
		r.Read(r.Cluster.Name, controlPlane)
		if i := slices.IndexFunc(controlPlane.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "Ready" && c.Reason == "CertificateAuthorityLost"
		}); i < 0 {
			return fmt.Errorf("the conditions are %+v", controlPlane.Status.Conditions)
		}
		return nil
	})
}
