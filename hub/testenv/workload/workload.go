// Package workload plays the API of a cluster that the hub manages, the part that controllers use: Nodes, which the test makes and
// changes, no pods and no volumes. It keeps everything in memory. Product code must not import it.
package workload

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
)

// Cluster is the API of a cluster.
type Cluster struct {
	server *httptest.Server

	mu      sync.Mutex
	version int
	nodes   map[string]*corev1.Node
	// events are all changes since the beginning, for watches; changed is closed and replaced with each.
	events  []metav1.WatchEvent
	changed chan struct{}
}

// Start starts an API without Nodes.
func Start() *Cluster {
	c := &Cluster{nodes: map[string]*corev1.Node{}, changed: make(chan struct{})}
	c.server = httptest.NewTLSServer(c.handler())
	return c
}

// Stop ends the API; its watches end, too.
func (c *Cluster) Stop() {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name].DeepCopy()
}

// SetNode makes a Node, or changes it into this one.
func (c *Cluster) SetNode(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(node.DeepCopy())
}

// ChangeNode changes a Node that is there.
func (c *Cluster) ChangeNode(name string, change func(*corev1.Node)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node := c.nodes[name].DeepCopy(); node != nil {
		change(node)
		c.set(node)
	}
}

// DeleteNode deletes a Node.
func (c *Cluster) DeleteNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node := c.nodes[name]; node != nil {
		delete(c.nodes, name)
		c.record("DELETED", node.DeepCopy())
	}
}

func (c *Cluster) set(node *corev1.Node) {
	kind := "ADDED"
	if _, there := c.nodes[node.Name]; there {
		kind = "MODIFIED"
	}
	c.nodes[node.Name] = node
	c.record(kind, node)
}

// record gives a Node a new version and tells watches of it.
func (c *Cluster) record(kind string, node *corev1.Node) {
	c.version++
	node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	node.ResourceVersion = strconv.Itoa(c.version)
	event := metav1.WatchEvent{Type: kind}
	event.Object.Object = node.DeepCopy()
	c.events = append(c.events, event)
	close(c.changed)
	c.changed = make(chan struct{})
}
