package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
)

const (
	// requestTimeout ends a read or a write for which nothing is transferred any more.
	requestTimeout = 30 * time.Second
	// longestRequest ends one in any case: a hub gives a machine less time.
	longestRequest = 10 * time.Minute
	userAgent      = "drover-system-agent"
)

// client reads and writes one Secret. Its rights on the hub are get, list, watch and update of that Secret, nothing else. It retries
// nothing: its callers do.
type client struct {
	rest            rest.Interface
	namespace, name string
	// connection is the connection info that the client was made of, file the content of its file.
	connection config.Connection
	file       []byte
	// config is that of rest; http has the same without credentials.
	config    *rest.Config
	http      *http.Client
	transport *transport
}

// codecs and parameters know Secrets and what the API machinery itself needs.
var codecs, parameters = func() (serializer.CodecFactory, runtime.ParameterCodec) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.SecretList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return serializer.NewCodecFactory(scheme), runtime.NewParameterCodec(scheme)
}()

// newClient makes a client of connection info. It trusts the authorities of the kubeconfig only; if there are none, those of the machine,
// unless opts refuse that.
func newClient(connection config.Connection, file []byte, opts Options) (*client, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig))
	if err != nil {
		return nil, fmt.Errorf("decoding kubeconfig: %w", err)
	}
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil {
		return nil, errors.New("the kubeconfig gets credentials from a program (exec or auth-provider), which is not supported")
	}
	if opts.Strict && len(cfg.CAData) == 0 && cfg.CAFile == "" {
		return nil, errors.New("CATTLE_AGENT_STRICT_VERIFY is set and the kubeconfig has no CA certificate")
	}
	if cfg.Insecure {
		return nil, errors.New("the kubeconfig disables verification of the server's certificate (insecure-skip-tls-verify)")
	}
	cfg.Dial = opts.Dial
	cfg.APIPath = "/api"
	cfg.GroupVersion = &corev1.SchemeGroupVersion
	cfg.NegotiatedSerializer = codecs.WithoutConversion()
	cfg.ContentType = runtime.ContentTypeJSON
	cfg.UserAgent = userAgent
	cfg.QPS, cfg.Burst = 200, 400 // never reached: the engine coalesces reports
	cfg.WarningHandler = rest.NoWarnings{}
	c := &client{namespace: connection.Namespace, name: connection.SecretName, connection: connection, file: file, transport: &transport{}}
	if c.http, err = rest.HTTPClientFor(rest.AnonymousClientConfig(cfg)); err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if base, ok := lowest(next).(*http.Transport); ok {
			setHTTP2(base)
		}
		c.transport.next = next
		return c.transport
	})
	withToken, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	// A redirect would carry the token to wherever it leads.
	withToken.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.rest, err = rest.RESTClientForConfigAndClient(cfg, withToken); err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	c.config = cfg
	return c, nil
}

// settings is held while the settings of a transport are looked at, which clients of the same hub share.
var settings sync.Mutex

// setHTTP2 sets what is not set of a transport, which nobody has used then.
//
// Both ends of a connection would keep the headers of requests, to send them as numbers the next time. The hub has ten thousand
// connections, each with a token of its own, and few requests.
func setHTTP2(base *http.Transport) {
	settings.Lock()
	defer settings.Unlock()
	if base.HTTP2 == nil {
		base.HTTP2 = &http.HTTP2Config{MaxEncoderHeaderTableSize: 1}
	}
}

// lowest is the transport that others wrap: client-go wraps those that it keeps for several clients.
func lowest(of http.RoundTripper) http.RoundTripper {
	for {
		wrapper, ok := of.(utilnet.RoundTripperWrapper)
		if !ok {
			return of
		}
		of = wrapper.WrappedRoundTripper()
	}
}

func (c *client) get(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return c.own(secret, c.do(ctx, c.rest.Get().Name(c.name), secret))
}

// update replaces the whole Secret if its resource version is still the given one.
func (c *client) update(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	updated := &corev1.Secret{}
	return c.own(updated, c.do(ctx, c.rest.Put().Name(c.name).Body(secret), updated))
}

// isOwn reports whether a Secret of a response is the one of the client. Any other is not used: its name would decide for which machine a
// plan must be signed.
func (c *client) isOwn(secret *corev1.Secret) bool {
	return secret.Namespace == c.namespace && secret.Name == c.name
}

// own returns the Secret of a response, or err, or an error if the response has another Secret.
func (c *client) own(secret *corev1.Secret, err error) (*corev1.Secret, error) {
	if err == nil && !c.isOwn(secret) {
		err = fmt.Errorf("the hub returned Secret %s/%s instead of %s/%s", secret.Namespace, secret.Name, c.namespace, c.name)
	}
	return secret, err
}

// list returns the Secret, or nil if it does not exist, and the resource version from which to watch.
func (c *client) list(ctx context.Context) (*corev1.Secret, string, error) {
	list := &corev1.SecretList{}
	if err := c.do(ctx, c.rest.Get().VersionedParams(&metav1.ListOptions{FieldSelector: c.selector()}, parameters), list); err != nil {
		return nil, "", err
	}
	for i := range list.Items {
		if c.isOwn(&list.Items[i]) {
			return &list.Items[i], list.ResourceVersion, nil
		}
	}
	return nil, list.ResourceVersion, nil
}

func (c *client) do(ctx context.Context, request *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, longestRequest)
	defer cancel()
	return request.MaxRetries(0).Namespace(c.namespace).Resource("secrets").Do(ctx).Into(into)
}

// watch returns the events of the Secret after a resource version. The server ends it after the timeout; one that knows longestWatchHeader
// may do so later, after longest at the latest.
func (c *client) watch(ctx context.Context, version string, timeout, longest time.Duration) (watch.Interface, error) {
	seconds := int64(timeout / time.Second)
	request := c.rest.Get()
	if longest > timeout {
		request.SetHeader(longestWatchHeader, strconv.Itoa(int(longest/time.Second)))
	}
	return request.MaxRetries(0).Namespace(c.namespace).Resource("secrets").
		VersionedParams(&metav1.ListOptions{FieldSelector: c.selector(), Watch: true, ResourceVersion: version,
			TimeoutSeconds: &seconds, AllowWatchBookmarks: true}, parameters).Watch(ctx)
}

func (c *client) selector() string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()
}

// getPublic requests a page of the hub that needs no credentials. No redirect is followed. The response must be read within requestTimeout.
func getPublic(ctx context.Context, from *http.Client, c *client, path string) (*http.Response, error) {
	address, err := url.JoinPath(c.config.Host, path)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", userAgent)
	once := *from
	once.Timeout = requestTimeout
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return once.Do(request)
}

// unverified returns an HTTP client that verifies no certificate. It must send no credentials, and nothing that it reads is trusted.
func (c *client) unverified() *http.Client {
	proxy := c.config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return &http.Client{Transport: &http.Transport{Proxy: proxy, DialContext: c.config.Dial, TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, ServerName: c.config.ServerName}}}
}

// serverName returns the name that the hub's certificate must be valid for.
func (c *client) serverName() string {
	if c.config.ServerName != "" {
		return c.config.ServerName
	}
	address, err := url.Parse(c.config.Host)
	if err != nil {
		return ""
	}
	return address.Hostname()
}
