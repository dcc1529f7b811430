// Package secretcache holds the Secrets that the gateway works with: plan Secrets, tokens of ServiceAccounts, machine requests and
// registration tokens. Each kind costs the Kubernetes API one watch, however many machines there are, and Secrets of others are never
// read.
//
// It must not decide who may see or change what is in it.
package secretcache

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/intern"
	"github.com/drover-dev/drover/hub/util/response"
)

// ErrNotSynced answers requests that need the cache before it is filled.
var ErrNotSynced = response.Retry(2*time.Second, "the hub is starting: its caches are not filled yet")

// Cache watches the Secrets of the gateway.
type Cache struct {
	// Plans are the plan Secrets of all machines.
	Plans *PlanStore
	// Registrations are the Secrets of registration tokens.
	Registrations RegistrationTokens

	planReflector *cache.Reflector
	// accountTokens are the tokens of ServiceAccounts, requests those for machines, registrations those behind Registrations.
	accountTokens, requests, registrations cache.SharedIndexInformer
	changes                                *notifier
}

// Names of indices of accountTokens.
const (
	byTokenHash = "tokenHash"
	byAccount   = "account"
)

// New returns a Cache that is empty until Start.
func New(clientset kubernetes.Interface, log logr.Logger) *Cache {
	c := &Cache{Plans: NewPlanStore(), changes: newNotifier()}
	watch := func(selector func(*metav1.ListOptions)) *cache.ListWatch {
		return cache.NewFilteredListWatchFromClient(clientset.CoreV1().RESTClient(), "secrets", metav1.NamespaceAll, selector)
	}
	ofType := func(secretType corev1.SecretType) *cache.ListWatch {
		return watch(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("type", string(secretType)).String()
		})
	}
	c.planReflector = cache.NewReflectorWithOptions(ofType(rkev1.MachinePlanSecretType), &corev1.Secret{}, c.Plans,
		cache.ReflectorOptions{Name: "gateway plan Secrets", Logger: &log})
	c.accountTokens = cache.NewSharedIndexInformer(ofType(corev1.SecretTypeServiceAccountToken), &corev1.Secret{}, 0,
		cache.Indexers{byTokenHash: indexTokenHash, byAccount: indexAccount})
	c.requests = cache.NewSharedIndexInformer(ofType(rkev1.MachineRequestSecretType), &corev1.Secret{}, 0, cache.Indexers{})
	labelled := func(o *metav1.ListOptions) { o.LabelSelector = managementv3.RegistrationTokenLabel }
	c.registrations = cache.NewSharedIndexInformer(watch(labelled),
		&corev1.Secret{}, 0, RegistrationIndexers)
	c.Registrations = RegistrationTokens{c.registrations.GetIndexer()}

	// None of these fails before an informer runs.
	_ = c.accountTokens.SetTransform(func(in any) (any, error) {
		if secret, ok := in.(*corev1.Secret); ok {
			secret.ManagedFields = nil
			secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: secret.Data[corev1.ServiceAccountTokenKey]}
		}
		intern.Object(in)
		return in, nil
	})
	c.notifyOn(c.accountTokens, func(secret *corev1.Secret) string { return accountTopic(accountOf(secret)) })
	c.notifyOn(c.requests, func(secret *corev1.Secret) string { return requestTopic(keyOf(secret)) })
	return c
}

// Start fills the Cache and keeps it up to date until ctx ends. It does not wait.
func (c *Cache) Start(ctx context.Context) {
	go c.planReflector.RunWithContext(ctx)
	for _, informer := range []cache.SharedIndexInformer{c.accountTokens, c.requests, c.registrations} {
		go informer.RunWithContext(ctx)
	}
}

// Wait waits until all kinds have been listed. It returns false if ctx ends first.
func (c *Cache) Wait(ctx context.Context) bool { return cache.WaitForCacheSync(ctx.Done(), c.Synced) }

// Synced reports whether all kinds have been listed.
func (c *Cache) Synced() bool {
	return c.Plans.Synced() && c.accountTokens.HasSynced() && c.requests.HasSynced() && c.registrations.HasSynced()
}

// Issued returns the Secrets that hold a token of a ServiceAccount, as those of machines do: one, unless somebody has copied it.
func (c *Cache) Issued(token string) []*corev1.Secret {
	return c.accountTokensBy(byTokenHash, tokens.BootstrapTokenHash(tokens.AccountBootstrapToken([]byte(token))))
}

// BootstrapToken returns the Secrets that say that a token is in bootstrap data: the plan Secret of the machine, or the token of its
// bootstrap ServiceAccount if an earlier hub created one. There may be others with copies of the annotation.
func (c *Cache) BootstrapToken(token string) []*corev1.Secret {
	hash := tokens.BootstrapTokenHash(token)
	secrets := c.Plans.byBootstrapToken(hash)
	for _, secret := range c.accountTokensBy(byTokenHash, hash) {
		if secret.Annotations[rkev1.BootstrapTokenAnnotation] == "true" {
			secrets = append(secrets, secret)
		}
	}
	return secrets
}

// AccountTokens returns the token Secrets of a ServiceAccount, also of an earlier one of the same name. Of their data only the token is
// kept.
func (c *Cache) AccountTokens(account types.NamespacedName) []*corev1.Secret {
	return c.accountTokensBy(byAccount, account.String())
}

func (c *Cache) accountTokensBy(index, value string) []*corev1.Secret {
	found, _ := c.accountTokens.GetIndexer().ByIndex(index, value) // fails for an unknown index only
	secrets := make([]*corev1.Secret, 0, len(found))
	for _, obj := range found {
		if secret, ok := obj.(*corev1.Secret); ok {
			secrets = append(secrets, secret)
		}
	}
	return secrets
}

// MachineRequest returns a machine request, or nil.
func (c *Cache) MachineRequest(key types.NamespacedName) *corev1.Secret {
	obj, _, _ := c.requests.GetStore().GetByKey(key.String()) // never fails
	secret, _ := obj.(*corev1.Secret)
	return secret
}

// SubscribeAccount returns a channel that receives after each change of a ServiceAccount's tokens, or of the account itself as
// AccountChanged reports it. cancel ends the subscription.
func (c *Cache) SubscribeAccount(account types.NamespacedName) (changed <-chan struct{}, cancel func()) {
	return c.changes.subscribe(accountTopic(account))
}

// SubscribeRequest returns a channel that receives after each change of a machine request.
func (c *Cache) SubscribeRequest(key types.NamespacedName) (changed <-chan struct{}, cancel func()) {
	return c.changes.subscribe(requestTopic(key))
}

// AccountChanged notifies the subscribers of a ServiceAccount.
func (c *Cache) AccountChanged(account types.NamespacedName) { c.changes.notify(accountTopic(account)) }

// OnRegistrationDeleted registers what is called with the Secret of a registration token that was deleted, when its tokens are no longer
// found. It must not block.
func (c *Cache) OnRegistrationDeleted(deleted func(*corev1.Secret)) error {
	_, err := c.registrations.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if final, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = final.Obj
		}
		if secret, ok := obj.(*corev1.Secret); ok {
			deleted(secret)
		}
	}})
	if err != nil {
		return fmt.Errorf("watching the Secrets of registration tokens: %w", err)
	}
	return nil
}

func requestTopic(key types.NamespacedName) string { return "request/" + key.String() }

func accountTopic(account types.NamespacedName) string { return "account/" + account.String() }

func keyOf(secret *corev1.Secret) types.NamespacedName {
	return types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}
}

// accountOf names the ServiceAccount of a token Secret.
func accountOf(secret *corev1.Secret) types.NamespacedName {
	return types.NamespacedName{Namespace: secret.Namespace, Name: secret.Annotations[corev1.ServiceAccountNameKey]}
}

func (c *Cache) notifyOn(informer cache.SharedIndexInformer, topic func(*corev1.Secret) string) {
	notify := func(obj any) {
		if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = deleted.Obj
		}
		if secret, ok := obj.(*corev1.Secret); ok {
			c.changes.notify(topic(secret))
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, DeleteFunc: notify,
		UpdateFunc: func(before, after any) {
			if !onlyUsed(before, after) {
				notify(after)
			}
		},
	})
}

// Labels of token Secrets (legacy.go of k8s.io/kubernetes/pkg/serviceaccount).
const (
	// LastUsedLabel has the date of the last use. The API server writes it on the first use of a day that it sees.
	LastUsedLabel = "kubernetes.io/legacy-token-last-used"
	// InvalidSinceLabel is on a token that the API server refuses, since nobody has used it for long.
	InvalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// onlyUsed reports whether a Secret has changed in nothing but the date of its last use. On the day on which ten thousand agents connect
// for the first time, each would otherwise be asked about two times more.
func onlyUsed(before, after any) bool {
	a, ok := before.(*corev1.Secret)
	b, same := after.(*corev1.Secret)
	if !ok || !same || a.UID != b.UID || a.Labels[LastUsedLabel] == b.Labels[LastUsedLabel] {
		return false
	}
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, secret := range []*corev1.Secret{a, b} {
		delete(secret.Labels, LastUsedLabel)
		secret.ResourceVersion, secret.ManagedFields = "", nil
	}
	return equality.Semantic.DeepEqual(a, b)
}

func indexAccount(obj any) ([]string, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("indexing %T as a Secret", obj)
	}
	return []string{accountOf(secret).String()}, nil
}

// indexTokenHash finds a ServiceAccount's token by the hash of its bootstrap token, so that the time of a look-up reveals nothing about
// existing tokens.
func indexTokenHash(obj any) ([]string, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("indexing %T as a Secret", obj)
	}
	token := secret.Data[corev1.ServiceAccountTokenKey]
	if len(token) == 0 {
		return nil, nil
	}
	return []string{tokens.BootstrapTokenHash(tokens.AccountBootstrapToken(token))}, nil
}
