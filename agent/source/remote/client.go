package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
)

const (
	// callTimeout ends a read or a write that gets no answer.
	callTimeout = 30 * time.Second
	userAgent   = "drover-system-agent"
)

// client reads and writes one Secret. Its rights on the hub are get, list, watch and update of that Secret, nothing else. It tries
// nothing again by itself: whoever asks knows better when.
type client struct {
	rest            rest.Interface
	namespace, name string
	// connection is what the client was made of, file the content of the file that it was in.
	connection config.Connection
	file       []byte
	// config leads to the hub, http there without credentials.
	config    *rest.Config
	http      *http.Client
	transport *transport
}

// codecs know Secrets and what the API machinery itself needs.
var codecs, parameters = func() (serializer.CodecFactory, runtime.ParameterCodec) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.SecretList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return serializer.NewCodecFactory(scheme), runtime.NewParameterCodec(scheme)
}()

// newClient makes a client of connection info. The certificates of the kubeconfig are the only ones it trusts; where it holds none,
// the machine's own do, unless strict forbids that.
func newClient(connection config.Connection, file []byte, strict bool) (*client, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig))
	if err != nil {
		return nil, fmt.Errorf("decoding kubeconfig: %w", err)
	}
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil {
		return nil, errors.New("the kubeconfig asks to run a program for credentials, which the agent does not do")
	}
	if strict && len(cfg.CAData) == 0 && cfg.CAFile == "" {
		return nil, errors.New("strict verification is on and the kubeconfig holds no CA certificate")
	}
	if cfg.Insecure {
		return nil, errors.New("the kubeconfig turns the verification of the server's certificate off")
	}
	cfg.APIPath = "/api"
	cfg.GroupVersion = &corev1.SchemeGroupVersion
	cfg.NegotiatedSerializer = codecs.WithoutConversion()
	cfg.ContentType = runtime.ContentTypeJSON
	cfg.UserAgent = userAgent
	cfg.QPS, cfg.Burst = 200, 400 // an outcome never waits; what may wait is gathered before it comes here
	cfg.WarningHandler = rest.NoWarnings{}
	c := &client{namespace: connection.Namespace, name: connection.SecretName, connection: connection, file: file, transport: &transport{}}
	if c.http, err = rest.HTTPClientFor(rest.AnonymousClientConfig(cfg)); err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		c.transport.next = next
		return c.transport
	})
	withToken, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	// The token would be sent along to wherever a redirect leads.
	withToken.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.rest, err = rest.RESTClientForConfigAndClient(cfg, withToken); err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	c.config = cfg
	return c, nil
}

func (c *client) get(ctx context.Context) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	err := c.rest.Get().MaxRetries(0).Namespace(c.namespace).Resource("secrets").Name(c.name).Do(ctx).Into(secret)
	return secret, err
}

// list gives the Secret, or nil where there is none, and the version from which to watch.
func (c *client) list(ctx context.Context) (*corev1.Secret, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list := &corev1.SecretList{}
	err := c.rest.Get().MaxRetries(0).Namespace(c.namespace).Resource("secrets").
		VersionedParams(&metav1.ListOptions{FieldSelector: c.selector()}, parameters).Do(ctx).Into(list)
	if err != nil {
		return nil, "", err
	}
	for i := range list.Items {
		if list.Items[i].Name == c.name {
			return &list.Items[i], list.ResourceVersion, nil
		}
	}
	return nil, list.ResourceVersion, nil
}

// watch gives what happens to the Secret after a version. The server ends it after the time given.
func (c *client) watch(ctx context.Context, version string, last time.Duration) (watch.Interface, error) {
	seconds := int64(last / time.Second)
	return c.rest.Get().MaxRetries(0).Namespace(c.namespace).Resource("secrets").
		VersionedParams(&metav1.ListOptions{FieldSelector: c.selector(), Watch: true, ResourceVersion: version,
			TimeoutSeconds: &seconds, AllowWatchBookmarks: true}, parameters).Watch(ctx)
}

// update replaces the Secret as a whole, if it is still of the version that it was read with.
func (c *client) update(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	updated := &corev1.Secret{}
	err := c.rest.Put().MaxRetries(0).Namespace(c.namespace).Resource("secrets").Name(c.name).Body(secret).Do(ctx).Into(updated)
	return updated, err
}

func (c *client) selector() string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()
}
