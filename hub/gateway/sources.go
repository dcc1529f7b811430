package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// sources are the watches of Secrets that all machines share: one for each kind of Secret that the gateway has to do with, and none
// for other people's Secrets. No number of machines makes it more.
type sources struct {
	plans *cache.Reflector
	store *planStore
	// accountTokens are the tokens of ServiceAccounts, requests those for machines, registrationTokens those of clusters.
	accountTokens, requests, registrationTokens cache.SharedIndexInformer

	changed *notifier
}

// Names of indices of accountTokens.
const (
	byTokenHash = "tokenHash"
	byAccount   = "account"
)

func newSources(clientset kubernetes.Interface, store *planStore, log logr.Logger) *sources {
	s := &sources{store: store, changed: newNotifier()}
	watch := func(selector func(*metav1.ListOptions)) *cache.ListWatch {
		return cache.NewFilteredListWatchFromClient(clientset.CoreV1().RESTClient(), "secrets", metav1.NamespaceAll, selector)
	}
	ofType := func(secretType string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("type", secretType).String()
		}
	}
	s.plans = cache.NewReflectorWithOptions(watch(ofType(rkev1.MachinePlanSecretType)), &corev1.Secret{}, store,
		cache.ReflectorOptions{Name: "gateway plan Secrets", Logger: &log})
	s.accountTokens = cache.NewSharedIndexInformer(watch(ofType(string(corev1.SecretTypeServiceAccountToken))), &corev1.Secret{}, 0,
		cache.Indexers{byTokenHash: indexTokenHash, byAccount: indexAccount})
	s.requests = cache.NewSharedIndexInformer(watch(ofType(rkev1.MachineRequestSecretType)), &corev1.Secret{}, 0, cache.Indexers{})
	s.registrationTokens = cache.NewSharedIndexInformer(watch(func(o *metav1.ListOptions) {
		o.LabelSelector = managementv3.RegistrationTokenLabel
	}), &corev1.Secret{}, 0, cache.Indexers{byRegistration: indexRegistration})

	// None of these fails before an informer runs.
	_ = s.accountTokens.SetTransform(func(in any) (any, error) {
		if secret, ok := in.(*corev1.Secret); ok {
			secret.ManagedFields = nil
			secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: secret.Data[corev1.ServiceAccountTokenKey]}
		}
		return in, nil
	})
	s.notifyOn(s.accountTokens, func(secret *corev1.Secret) string { return accountOf(secret) })
	s.notifyOn(s.requests, func(secret *corev1.Secret) string { return requestSubject(secret.Namespace, secret.Name) })
	return s
}

// requestSubject is what waiters for a machine request subscribe to; waiters for a token subscribe to accountOf.
func requestSubject(namespace, name string) string { return "request/" + namespace + "/" + name }

func accountSubject(namespace, name string) string { return "account/" + namespace + "/" + name }

func accountOf(secret *corev1.Secret) string {
	return accountSubject(secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])
}

func (s *sources) notifyOn(informer cache.SharedIndexInformer, subject func(*corev1.Secret) string) {
	notify := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if secret, ok := obj.(*corev1.Secret); ok {
			s.changed.notify(subject(secret))
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, obj any) { notify(obj) }, DeleteFunc: notify,
	})
}

func (s *sources) start(ctx context.Context) {
	go s.plans.RunWithContext(ctx)
	for _, informer := range []cache.SharedIndexInformer{s.accountTokens, s.requests, s.registrationTokens} {
		go informer.RunWithContext(ctx)
	}
}

func (s *sources) synced() bool {
	return s.store.synced() && s.accountTokens.HasSynced() && s.requests.HasSynced() && s.registrationTokens.HasSynced()
}

// indexTokenHash finds a ServiceAccount's token by its bootstrap token.
func indexTokenHash(obj any) ([]string, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("indexing %T as a Secret", obj)
	}
	token := secret.Data[corev1.ServiceAccountTokenKey]
	if len(token) == 0 {
		return nil, nil
	}
	return []string{bootstrapTokenIndex(bootstrapToken(token))}, nil
}

// bootstrapToken is what the bootstrap data of a machine holds instead of the token of its bootstrap ServiceAccount: enough to register
// with, and nothing that the Kubernetes API would take.
func bootstrapToken(accountToken []byte) string {
	sum := sha256.Sum256(accountToken)
	return base64.URLEncoding.EncodeToString(sum[:])
}

// bootstrapTokenIndex is what a bootstrap token is found by: a hash of it, so that how long a look-up takes tells nothing about those
// that exist. It does not matter whether the token has its padding.
func bootstrapTokenIndex(token string) string {
	return hexSHA256([]byte(strings.TrimRight(token, "=")))
}

func indexAccount(obj any) ([]string, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("indexing %T as a Secret", obj)
	}
	return []string{accountOf(secret)}, nil
}

// issued tells whether a token is one of those that the hub's Kubernetes keeps in a Secret, as those of machines are.
func (s *sources) issued(token string) bool {
	keys, err := s.accountTokens.GetIndexer().IndexKeys(byTokenHash, bootstrapTokenIndex(bootstrapToken([]byte(token))))
	return err == nil && len(keys) > 0
}

// secretsBy returns the ServiceAccount tokens that an index has under a value.
func (s *sources) secretsBy(index, value string) ([]*corev1.Secret, error) {
	found, err := s.accountTokens.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil, fmt.Errorf("looking up a ServiceAccount token: %w", err)
	}
	secrets := make([]*corev1.Secret, 0, len(found))
	for _, obj := range found {
		if secret, ok := obj.(*corev1.Secret); ok {
			secrets = append(secrets, secret)
		}
	}
	return secrets, nil
}
