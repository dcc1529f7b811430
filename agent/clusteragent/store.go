package clusteragent

import (
	"context"
	"crypto/rand"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// identitySecret is the Secret with the agent's identity; the other constants are its keys. All pods of the agent share it, so that a new
// pod does not need the registration token.
const (
	identitySecret = "cattle-cluster-agent-identity"
	agentKey       = "agent"
	credentialKey  = "credential"
	expiresKey     = "expiresAt"
	renewKey       = "renewAfter"
)

// identity is the content of the Secret: the ID of the agent, its credential, and when that expires and should be renewed.
type identity struct {
	Agent, Credential     string
	ExpiresAt, RenewAfter time.Time
}

// identityStore reads and writes the Secret.
type identityStore interface {
	// read returns the Secret. If it does not exist, read creates it with the ID agent, or with a new ID if that is empty.
	read(ctx context.Context, agent string) (*corev1.Secret, error)
	// write updates the Secret as it was read. The error is a conflict if it has changed since.
	write(ctx context.Context, current *corev1.Secret, next identity) error
}

type secretStore struct {
	rest      rest.Interface
	namespace string
}

func newSecretStore(kubernetes *rest.Config, namespace string) (*secretStore, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	cfg := rest.CopyConfig(kubernetes)
	cfg.APIPath = "/api"
	cfg.GroupVersion = &corev1.SchemeGroupVersion
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType = runtime.ContentTypeJSON
	cfg.Timeout = requestTimeout
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return &secretStore{rest: client, namespace: namespace}, nil
}

func (s *secretStore) read(ctx context.Context, agent string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.rest.Get().Namespace(s.namespace).Resource("secrets").Name(identitySecret).Do(ctx).Into(secret)
	if !apierrors.IsNotFound(err) {
		return secret, err
	}
	if agent == "" {
		agent = newAgentID()
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: identitySecret, Namespace: s.namespace},
		Data: map[string][]byte{agentKey: []byte(agent)}}
	created := &corev1.Secret{}
	err = s.rest.Post().Namespace(s.namespace).Resource("secrets").Body(secret).Do(ctx).Into(created)
	if apierrors.IsAlreadyExists(err) {
		err = s.rest.Get().Namespace(s.namespace).Resource("secrets").Name(identitySecret).Do(ctx).Into(created)
	}
	return created, err
}

func (s *secretStore) write(ctx context.Context, current *corev1.Secret, next identity) error {
	secret := current.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for key, value := range map[string]string{
		agentKey: next.Agent, credentialKey: next.Credential,
		expiresKey: next.ExpiresAt.UTC().Format(time.RFC3339), renewKey: next.RenewAfter.UTC().Format(time.RFC3339),
	} {
		secret.Data[key] = []byte(value)
	}
	return s.rest.Put().Namespace(s.namespace).Resource("secrets").Name(identitySecret).Body(secret).Do(ctx).Error()
}

var agentPattern = regexp.MustCompile(`^[a-z0-9-]{16,64}$`)

// decodeIdentity decodes the Secret. Invalid values are ignored, since the agent can get new ones.
func decodeIdentity(secret *corev1.Secret) identity {
	i := identity{Agent: string(secret.Data[agentKey]), Credential: string(secret.Data[credentialKey])}
	if !agentPattern.MatchString(i.Agent) {
		return identity{Agent: newAgentID()}
	}
	var err error
	if i.ExpiresAt, err = time.Parse(time.RFC3339, string(secret.Data[expiresKey])); err == nil {
		i.RenewAfter, err = time.Parse(time.RFC3339, string(secret.Data[renewKey]))
	}
	if err != nil || i.Credential == "" || strings.ContainsFunc(i.Credential, notPrintable) {
		return identity{Agent: i.Agent}
	}
	return i
}

func newAgentID() string { return strings.ToLower(rand.Text()) }
