package egress

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/access/kubeconfig"
)

// Reader reads kubeconfig Secrets as kubeconfig.Reader does, with the proxy put into them. They have clients request answers without
// compression, which a hostile cluster could use to fill the hub's memory with little data.
func (p *Proxy) Reader(reader client.Reader) client.Reader {
	return proxiedReader{Reader: kubeconfig.Reader(reader), proxy: p}
}

type proxiedReader struct {
	client.Reader
	proxy *Proxy
}

// Get implements client.Reader.
func (r proxiedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := r.Reader.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	found, ok := object.(*corev1.Secret)
	if !ok || len(found.Data[secret.KubeconfigDataName]) == 0 {
		return nil
	}
	config, err := kubeconfig.Load(found.Data[secret.KubeconfigDataName])
	if err != nil {
		return fmt.Errorf("kubeconfig Secret %s: %w", key.Name, err)
	}
	for _, cluster := range config.Clusters {
		if cluster.ProxyURL, err = r.proxy.URL(cluster.Server); err != nil {
			return fmt.Errorf("the proxy for kubeconfig Secret %s: %w", key.Name, err)
		}
		cluster.DisableCompression = true
	}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of Secret %s: %w", key.Name, err)
	}
	found.Data = map[string][]byte{secret.KubeconfigDataName: raw}
	return nil
}
