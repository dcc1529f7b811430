package gateway

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/drover-dev/drover/hub/settings"
)

// connection is what a machine needs to get its plans; it becomes the machine's connection file.
type connection struct {
	KubeConfig string `json:"kubeConfig"`
	Namespace  string `json:"namespace"`
	SecretName string `json:"secretName"`
	// PlanSigningKey is left out where plans are not signed. Agents of the older kind ignore it.
	PlanSigningKey string `json:"planSigningKey,omitempty"`
}

// newConnection says where the plan Secret is and with which token it is read. The name "agent" of everything is what agents know.
func newConnection(s settings.Settings, key ed25519.PublicKey, namespace, secretName string, token []byte) (*connection, error) {
	const name = "agent"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.ServerURL, CertificateAuthorityData: s.CACerts}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: string(token)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	encoded, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return &connection{
		KubeConfig: string(encoded), Namespace: namespace, SecretName: secretName, PlanSigningKey: base64.StdEncoding.EncodeToString(key),
	}, nil
}
