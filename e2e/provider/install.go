package provider

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

//go:embed config
var config embed.FS

// The provider's account, as config/rbac.yaml has it.
const (
	accountNamespace = "lab-system"
	accountName      = "lab-provider"

	tokenLifetime = 7 * 24 * time.Hour // longer than any lab lives
	fieldOwner    = "lab-provider"
)

// Install puts the kinds of the provider and its rights into an API, as clusterctl does with any other provider, and returns when the
// kinds are served. Done again, it changes nothing.
func Install(ctx context.Context, c client.Client) error {
	files, err := config.ReadDir("config")
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := installFile(ctx, c, path.Join("config", file.Name())); err != nil {
			return fmt.Errorf("installing the lab's provider: %s: %w", file.Name(), err)
		}
	}
	return nil
}

func installFile(ctx context.Context, c client.Client, name string) error {
	raw, err := config.ReadFile(name)
	if err != nil {
		return err
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := install(ctx, c, document); err != nil {
			return err
		}
	}
}

func install(ctx context.Context, c client.Client, document []byte) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(document, &o.Object); err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership, client.FieldOwner(fieldOwner)); err != nil {
		return err
	}
	if o.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	for {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if isEstablished(o) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s is served: %w", o.GetName(), context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func isEstablished(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		if c["type"] == string(apiextensionsv1.Established) && c["status"] == "True" {
			return true
		}
	}
	return false
}

// Kubeconfig opens the API with the provider's own rights. It holds a token that is good for some days.
func Kubeconfig(ctx context.Context, c client.Client, config *rest.Config) ([]byte, error) {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = accountNamespace, accountName
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))}}
	if err := c.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("making a token for the lab's provider: %w", err)
	}
	const name = "lab"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}
