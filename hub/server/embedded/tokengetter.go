package embedded

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// tokenGetter reads what a token of a ServiceAccount is checked against: from caches, and what they do not have from the API, as the API
// server of a cluster does it. With the caches alone, as in the sample, a token is refused that was issued a moment ago.
type tokenGetter struct {
	accounts v1.ServiceAccountLister
	secrets  v1.SecretLister
	// live is nil until the API server is ready. It has no token itself, so that to check one asks for no other.
	live atomic.Pointer[kubernetes.Clientset]
}

// from sets the caches. That of Secrets holds those with tokens of ServiceAccounts: nothing else of the API server reads Secrets, and those
// of machines are many and large.
func (g *tokenGetter) from(factory informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
	secrets := factory.InformerFor(&corev1.Secret{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredSecretInformer(client, metav1.NamespaceAll, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, tokensOnly)
	})
	_ = secrets.SetTransform(tokenAlone) // fails only when the informer runs already
	g.accounts, g.secrets = factory.Core().V1().ServiceAccounts().Lister(), v1.NewSecretLister(secrets.GetIndexer())
	return g
}

// tokensOnly selects Secrets with tokens of ServiceAccounts.
func tokensOnly(o *metav1.ListOptions) {
	o.FieldSelector = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()
}

// tokenAlone drops what else is in a Secret with a token: the certificate of the authority is as long as the token.
func tokenAlone(in any) (any, error) {
	if secret, ok := in.(*corev1.Secret); ok {
		secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: secret.Data[corev1.ServiceAccountTokenKey]}
	}
	return trimObject(in)
}

// GetServiceAccount implements serviceaccount.ServiceAccountTokenGetter.
func (g *tokenGetter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := g.accounts.ServiceAccounts(namespace).Get(name)
	if live := g.live.Load(); err != nil && live != nil {
		return live.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return account, err
}

// GetSecret implements serviceaccount.ServiceAccountTokenGetter.
func (g *tokenGetter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := g.secrets.Secrets(namespace).Get(name)
	if live := g.live.Load(); err != nil && live != nil {
		return live.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return secret, err
}

// GetPod implements serviceaccount.ServiceAccountTokenGetter: there are none.
func (g *tokenGetter) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// GetNode implements serviceaccount.ServiceAccountTokenGetter: there are none.
func (g *tokenGetter) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}
