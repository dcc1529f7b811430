package access

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/workload"
)

func base64CA() string { return base64.StdEncoding.EncodeToString(env.CACerts) }

// secretConfig reads the kubeconfig Secret of a cluster.
func secretConfig(t *testing.T, namespace, name string) (*rest.Config, *corev1.Secret, error) {
	t.Helper()
	secret := &corev1.Secret{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name + "-kubeconfig"}, secret); err != nil {
		return nil, nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	return config, secret, err
}

// TestClusterBehindFirewall: Cluster API reaches a cluster that accepts no connections through the tunnel, with a token of the hub that is
// deleted with the cluster.
func TestClusterBehindFirewall(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "walled", nil)
	r.Read(r.Cluster.Name, r.Cluster)
	management := r.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	m := r.Register("walled-one", "192.0.2.10", "etcd", "control-plane", "worker") // an unused address
	m.AwaitPlan("")
	m.Take()
	m.Succeed()
	testenv.Until(t, "a kubeconfig that leads to the server", func() error {
		config, _, err := secretConfig(t, r.Cluster.Namespace, r.Cluster.Name)
		if err == nil && config.Host != "https://192.0.2.10:6443" {
			err = fmt.Errorf("it leads to %s", config.Host)
		}
		return err
	})
	walled := workload.Start()
	t.Cleanup(walled.Stop)
	env.NewAgentOf(t, management, walled.Config())
	began := time.Now()
	var token string
	testenv.Until(t, "a kubeconfig that leads through the tunnel", func() error {
		config, _, err := secretConfig(t, r.Cluster.Namespace, r.Cluster.Name)
		if err == nil && config.Host != env.ServerURL+"/k8s/clusters/"+management {
			err = fmt.Errorf("it leads to %s", config.Host)
		}
		if err == nil {
			token = config.BearerToken
		}
		return err
	})
	t.Logf("the kubeconfig leads through the tunnel %s after the agent came", time.Since(began).Round(time.Millisecond))
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: r.Cluster.Name}}
	testenv.Condition(t, env, capi, clusterv1.ClusterRemoteConnectionProbeCondition, metav1.ConditionTrue, "")
	t.Logf("Cluster API is connected %s after the agent came", time.Since(began).Round(time.Millisecond))

	testenv.Until(t, "the Secret to be left alone", func() error {
		_, secret, err := secretConfig(t, r.Cluster.Namespace, r.Cluster.Name)
		if err != nil {
			return err
		}
		time.Sleep(3 * time.Second) // whoever writes again and again does so now
		_, later, err := secretConfig(t, r.Cluster.Namespace, r.Cluster.Name)
		if err == nil && later.ResourceVersion != secret.ResourceVersion {
			err = errors.New("it is written although nothing changes")
		}
		return err
	})
	own := tokensOf(t, management)
	if len(own) != 1 || own[0].Spec.Hash != tokens.Hash(token) {
		t.Errorf("there are %d Tokens for the token in the Secret", len(own))
	}
	log, err := os.ReadFile(env.Log)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log, []byte(token)) {
		t.Error("the hub's log holds the token")
	}

	// Somebody revokes the token: Cluster API gets another one.
	env.Delete(t, &own[0])
	testenv.Until(t, "another token", func() error {
		config, _, err := secretConfig(t, r.Cluster.Namespace, r.Cluster.Name)
		if err == nil && config.BearerToken == token {
			err = errors.New("it is the revoked one")
		}
		return err
	})
}

func tokensOf(t *testing.T, management string) (out []managementv3.Token) {
	t.Helper()
	var list managementv3.TokenList
	if err := env.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, token := range list.Items {
		if token.Spec.ClusterName == management {
			out = append(out, token)
		}
	}
	return out
}

// newImported creates the Cluster of an existing cluster, and waits for its management Cluster.
func newImported(t *testing.T) (cluster *provisioningv1.Cluster, management string) {
	t.Helper()
	cluster = &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "imported"}}
	env.Create(t, cluster)
	testenv.Until(t, "the management Cluster", func() error {
		env.Get(t, cluster.Namespace, cluster.Name, cluster)
		if management = cluster.Status.ClusterName; management == "" {
			return errors.New("it has no name")
		}
		return nil
	})
	return cluster, management
}

// TestImportedCluster: an imported cluster has a kubeconfig Secret once its agent is connected, with the rights that the agent's manifest
// grants to the controllers.
func TestImportedCluster(t *testing.T) {
	t.Parallel()
	cluster, management := newImported(t)
	if _, _, err := secretConfig(t, cluster.Namespace, cluster.Name); !apierrors.IsNotFound(err) {
		t.Errorf("there is a kubeconfig of a cluster that was never connected: %v", err)
	}
	env.NewAgent(t, management)
	var config *rest.Config
	testenv.Until(t, "the kubeconfig Secret", func() error {
		var secret *corev1.Secret
		var err error
		config, secret, err = secretConfig(t, cluster.Namespace, cluster.Name)
		if err == nil && (config.Host != env.ServerURL+"/k8s/clusters/"+management || !metav1.IsControlledBy(secret, cluster)) {
			t.Fatalf("it leads to %s and belongs to %v", config.Host, secret.OwnerReferences)
		}
		return err
	})
	testenv.Until(t, "the cluster to answer", func() error {
		_, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion()
		return err
	})
	if who, err := userOf(t, config); who != "system:drover:hub" {
		t.Errorf("it is %q (%v)", who, err)
	}
	own := tokensOf(t, management)
	if len(own) != 1 || strings.Join(own[0].Spec.User.Groups, ",") != "drover:controllers" ||
		own[0].Spec.User.Username != "system:drover:hub" {
		t.Errorf("its tokens are %+v", own)
	}
	env.Delete(t, cluster)
	env.Gone(t, cluster)
	for _, token := range own {
		env.Gone(t, &token)
	}
}
