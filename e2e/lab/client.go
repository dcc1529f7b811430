package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Scheme knows every kind that a lab looks at.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, provisioningv1.AddToScheme, rkev1.AddToScheme, managementv3.AddToScheme,
		labv1.AddToScheme, operationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// HubKubeconfig is the file that the hub writes for its administrator.
func (l *Lab) HubKubeconfig() string { return filepath.Join(l.dataDir(), "admin.kubeconfig") }

// HubConfig opens the hub's API with the administrator's rights.
func (l *Lab) HubConfig() (*rest.Config, error) { return l.Config(l.HubKubeconfig()) }

// Config opens what a kubeconfig file leads to, from within the lab's network.
func (l *Lab) Config(kubeconfig string) (*rest.Config, error) {
	raw, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return l.restConfig(raw)
}

// HubClient is a client of the hub's API with the administrator's rights.
func (l *Lab) HubClient() (client.Client, error) {
	config, err := l.HubConfig()
	if err != nil {
		return nil, err
	}
	return NewClient(config)
}

// ClusterKubeconfig is the content of the Secret that opens a provisioned cluster.
func (l *Lab) ClusterKubeconfig(ctx context.Context, hub client.Client, cluster client.ObjectKey) ([]byte, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig"}
	if err := hub.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %s: %w", cluster, err)
	}
	if len(secret.Data["value"]) == 0 {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %s: Secret %s has no key value", cluster, key)
	}
	return secret.Data["value"], nil
}

// WriteClusterKubeconfig puts the kubeconfig of a provisioned cluster into a file of the lab, for kubectl.
func (l *Lab) WriteClusterKubeconfig(ctx context.Context, hub client.Client, cluster client.ObjectKey) (string, error) {
	raw, err := l.ClusterKubeconfig(ctx, hub, cluster)
	if err != nil {
		return "", err
	}
	file := filepath.Join(l.Dir, cluster.Namespace+"-"+cluster.Name+".kubeconfig")
	return file, os.WriteFile(file, raw, 0o600)
}

// ClusterClient opens a provisioned cluster with its kubeconfig Secret.
func (l *Lab) ClusterClient(ctx context.Context, hub client.Client, cluster client.ObjectKey) (client.Client, *rest.Config, error) {
	raw, err := l.ClusterKubeconfig(ctx, hub, cluster)
	if err != nil {
		return nil, nil, err
	}
	config, err := l.restConfig(raw)
	if err != nil {
		return nil, nil, err
	}
	c, err := NewClient(config)
	return c, config, err
}

// dialSoon is Dial for an API whose machine may be off: that shows sooner than that an API which was reached does not answer.
func (l *Lab) dialSoon(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return l.Dial(ctx, network, addr)
}

func (l *Lab) restConfig(kubeconfig []byte) (*rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Dial = l.dialSoon
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	config.Timeout = time.Minute
	config.QPS = -1
	return config, nil
}

// NewClient is a client that knows every kind a lab looks at.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// httpClient speaks HTTP from within the lab's network, and never through a proxy.
func (l *Lab) httpClient(config *tls.Config) *http.Client {
	return &http.Client{Timeout: 20 * time.Second,
		Transport: &http.Transport{DialContext: l.Dial, TLSClientConfig: config, DisableKeepAlives: true}}
}
