package egress

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/access/kubeconfig"
)

// Reader reads kubeconfig Secrets as kubeconfig.Reader does, and replaces each kubeconfig by one that leads to its server through this
// package and has no credential. Connections to the cluster that were made earlier are not used for new requests any more.
func (c *Clusters) Reader(reader client.Reader) client.Reader {
	return clustersReader{Reader: kubeconfig.Reader(reader), source: reader, clusters: c}
}

type clustersReader struct {
	client.Reader
	// source reads what is not checked.
	source   client.Reader
	clusters *Clusters
}

// Get implements client.Reader.
func (r clustersReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := r.Reader.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	found, ok := object.(*corev1.Secret)
	if !ok || len(found.Data[secret.KubeconfigDataName]) == 0 {
		return nil
	}
	config, err := kubeconfig.RESTConfig(found.Data[secret.KubeconfigDataName])
	if err != nil {
		return fmt.Errorf("kubeconfig Secret %s: %w", key.Name, err)
	}
	cluster := client.ObjectKey{Namespace: key.Namespace, Name: strings.TrimSuffix(key.Name, "-"+string(secret.Kubeconfig))}
	to, err := connect(cluster, config)
	if err != nil {
		return fmt.Errorf("preparing connections of kubeconfig Secret %s: %w", key.Name, err)
	}
	raw, err := writeKubeconfig(cluster.Name, r.clusters.url(cluster, to))
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of Secret %s: %w", key.Name, err)
	}
	r.clusters.set(hostOf(cluster), to)
	// A Cluster that was deleted after the check may have been forgotten before this.
	if err := r.source.Get(ctx, cluster, &clusterv1.Cluster{}); err != nil {
		r.clusters.Forget(cluster)
		return fmt.Errorf("reading Cluster %s: %w", cluster, err)
	}
	found.Data = map[string][]byte{secret.KubeconfigDataName: raw}
	return nil
}

func writeKubeconfig(name, server string) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}
