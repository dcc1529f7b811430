// Package workload plays the API of a cluster that the hub manages, the part that controllers use: Nodes and ETCDSnapshotFiles,
// which the test makes and changes, no pods and no volumes. It keeps everything in memory. Product code must not import it.
package workload

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
)

// Cluster is the API of a cluster.
type Cluster struct {
	server    *httptest.Server
	stop      context.CancelFunc
	nodes     *store[*corev1.Node]
	snapshots *store[*unstructured.Unstructured]
}

// Start starts an API without Nodes and without ETCDSnapshotFiles.
func Start() *Cluster {
	c := &Cluster{nodes: newStore[*corev1.Node](), snapshots: newStore[*unstructured.Unstructured]()}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.server = httptest.NewUnstartedServer(c.handler())
	c.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	c.server.EnableHTTP2 = true // as an API server: otherwise each watch has a connection of its own
	c.server.StartTLS()
	return c
}

// Stop ends the API; its watches end, too, and those that a client begins meanwhile.
func (c *Cluster) Stop() {
	c.stop()
	c.server.CloseClientConnections()
	c.server.Close()
}

// KubeconfigSecret is the Secret by which Cluster API reaches the cluster.
func (c *Cluster) KubeconfigSecret(namespace, name string) (*corev1.Secret, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   c.server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw}),
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "nobody-asks"}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secret.Name(name, secret.Kubeconfig),
			Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{secret.KubeconfigDataName: raw},
	}, nil
}

// Config is how the cluster is reached. Nobody is asked for a credential.
func (c *Cluster) Config() *rest.Config {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
	return &rest.Config{Host: c.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
}

// Node returns a copy of a Node, or nil.
func (c *Cluster) Node(name string) *corev1.Node {
	node, _ := c.nodes.get(name)
	return node
}

// SetNode makes a Node, or changes it into this one.
func (c *Cluster) SetNode(node *corev1.Node) {
	node = node.DeepCopy()
	node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	c.nodes.set(node)
}

// ChangeNode changes a Node that is there.
func (c *Cluster) ChangeNode(name string, change func(*corev1.Node)) { c.nodes.change(name, change) }

// DeleteNode deletes a Node.
func (c *Cluster) DeleteNode(name string) { c.nodes.delete(name) }

// SetSnapshotFile makes an ETCDSnapshotFile, or changes it into this one.
func (c *Cluster) SetSnapshotFile(file *unstructured.Unstructured) { c.snapshots.set(file.DeepCopy()) }

// DeleteSnapshotFile deletes an ETCDSnapshotFile.
func (c *Cluster) DeleteSnapshotFile(name string) { c.snapshots.delete(name) }
