package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/connlimit"
	"github.com/drover-dev/drover/hub/ratelimit"
)

// machine is who calls: the holder of a token of a plan ServiceAccount, and the one Secret that is the machine's own.
type machine struct {
	plan    types.NamespacedName
	account types.NamespacedName
	uid     types.UID
	token   string
	// bootstrap is the RKEBootstrap that account and plan were made for: who it is and who owns it, and nothing else, since a watch keeps it.
	bootstrap *rkev1.RKEBootstrap
}

// machineName is the Machine's name, and that of the RKEBootstrap until Cluster API has set its owner.
func (m *machine) machineName() types.NamespacedName {
	name := types.NamespacedName{Namespace: m.bootstrap.Namespace, Name: m.bootstrap.Name}
	if owner := metav1.GetControllerOf(m.bootstrap); owner != nil && owner.Kind == "Machine" {
		name.Name = owner.Name
	}
	return name
}

const (
	// A verdict of the API on a token is kept for reviewTTL, a bad one shorter. The ServiceAccount itself is looked up each time, so that a
	// machine that was deleted is out at once.
	reviewTTL    = 30 * time.Second
	rejectionTTL = 5 * time.Second
	// maxReviews bounds how many verdicts are kept.
	maxReviews = 20000
	// maxTokenLength is far beyond any ServiceAccount token.
	maxTokenLength = 8 << 10
)

// caChecksumHeader tells on every answer to a machine what the SHA-256 of /cacerts is, so that a machine learns of new authorities without
// asking for them.
const caChecksumHeader = "X-Drover-Cacerts-Checksum"

// errUnauthorized is every reason why a token is not one of a machine. Which it was is not the caller's business.
var errUnauthorized = refuse(http.StatusUnauthorized, "the token is missing, wrong, or of a machine that was deleted")

// machineAuthenticator finds out whose a token is.
type machineAuthenticator struct {
	// review asks the API whose token it is; ok is false for nobody's.
	review func(ctx context.Context, token string) (user authenticationv1.UserInfo, ok bool, err error)
	// cached has ServiceAccounts and RKEBootstraps as of a moment ago, live as of now.
	cached, live client.Reader
	// issued tells whether the hub itself has made a token, and it was not revoked; nil for never.
	issued func(token string) bool
	now    func() time.Time

	mu      sync.Mutex
	reviews map[[sha256.Size]byte]verdict
}

type verdict struct {
	account types.NamespacedName
	uid     types.UID
	ok      bool
	until   time.Time
}

func newMachineAuthenticator(c client.Client, live client.Reader) *machineAuthenticator {
	return &machineAuthenticator{
		cached: c, live: live, now: time.Now, reviews: map[[sha256.Size]byte]verdict{},
		review: func(ctx context.Context, token string) (authenticationv1.UserInfo, bool, error) {
			review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
			if err := c.Create(ctx, review); err != nil {
				return authenticationv1.UserInfo{}, false, fmt.Errorf("reviewing a token: %w", err)
			}
			return review.Status.User, review.Status.Authenticated, nil
		},
	}
}

// known tells whether a token is good for somebody without asking the API: it was made by the hub, or was good a moment ago.
func (a *machineAuthenticator) known(token string) bool {
	if token == "" || len(token) > maxTokenLength {
		return false
	}
	if a.issued != nil && a.issued(token) {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	v, found := a.reviews[sha256.Sum256([]byte(token))]
	return found && v.ok && a.now().Before(v.until)
}

// authenticate returns the machine that a token belongs to, or errUnauthorized.
func (a *machineAuthenticator) authenticate(ctx context.Context, token string) (*machine, error) {
	v, err := a.verdict(ctx, token)
	if err != nil {
		return nil, err
	}
	if !v.ok {
		return nil, errUnauthorized
	}
	account := &corev1.ServiceAccount{}
	if err := a.read(ctx, v.account, v.uid, account); err != nil {
		return nil, err
	}
	owner := rkev1.BootstrapOwner(account)
	if owner == nil || account.Name != rkev1.PlanSecretName(owner.Name) {
		return nil, errUnauthorized
	}
	bootstrap := &rkev1.RKEBootstrap{}
	if err := a.read(ctx, types.NamespacedName{Namespace: account.Namespace, Name: owner.Name}, owner.UID, bootstrap); err != nil {
		return nil, err
	}
	// A machine that is on its way out reports until it is gone; its account goes first.
	if !account.DeletionTimestamp.IsZero() {
		return nil, errUnauthorized
	}
	kept := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{
		Namespace: bootstrap.Namespace, Name: bootstrap.Name, UID: bootstrap.UID, OwnerReferences: bootstrap.OwnerReferences,
	}}
	return &machine{plan: v.account, account: v.account, uid: v.uid, token: token, bootstrap: kept}, nil
}

// read reads an object that has to be the one of a UID. A machine that has just registered may be ahead of the cache.
func (a *machineAuthenticator) read(ctx context.Context, key types.NamespacedName, uid types.UID, into client.Object) error {
	err := a.cached.Get(ctx, key, into)
	if apierrors.IsNotFound(err) || err == nil && into.GetUID() != uid {
		err = a.live.Get(ctx, key, into)
	}
	switch {
	case apierrors.IsNotFound(err) || err == nil && (into.GetUID() != uid || uid == ""):
		return errUnauthorized
	case err != nil:
		return fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return nil
}

func (a *machineAuthenticator) verdict(ctx context.Context, token string) (verdict, error) {
	if token == "" || len(token) > maxTokenLength {
		return verdict{}, nil
	}
	key := sha256.Sum256([]byte(token))
	a.mu.Lock()
	v, found := a.reviews[key]
	a.mu.Unlock()
	if found && a.now().Before(v.until) {
		return v, nil
	}
	user, ok, err := a.review(ctx, token)
	if err != nil {
		return verdict{}, err
	}
	v = verdict{until: a.now().Add(rejectionTTL)}
	if account, isAccount := accountName(user.Username); ok && isAccount {
		v = verdict{account: account, uid: types.UID(user.UID), ok: true, until: a.now().Add(reviewTTL)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.reviews) >= maxReviews {
		a.sweep()
	}
	a.reviews[key] = v
	return v, nil
}

// forget has the API asked about a token the next time.
func (a *machineAuthenticator) forget(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.reviews, sha256.Sum256([]byte(token)))
}

// sweep makes room: outdated verdicts go, and all of them where that is not enough.
func (a *machineAuthenticator) sweep() {
	for key, v := range a.reviews {
		if !a.now().Before(v.until) {
			delete(a.reviews, key)
		}
	}
	if len(a.reviews) >= maxReviews {
		clear(a.reviews)
	}
}

// accountName reads the user name of a ServiceAccount.
func accountName(user string) (types.NamespacedName, bool) {
	rest, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
	namespace, name, ok := strings.Cut(rest, ":")
	return types.NamespacedName{Namespace: namespace, Name: name}, isAccount && ok && namespace != "" && name != ""
}

// bearerToken returns the token of the Authorization header, or "".
func bearerToken(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// asMachine lets only machines through, each with what it is.
func (s *Server) asMachine(next func(http.ResponseWriter, *http.Request, *machine)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if checksum := s.opts.Settings.CAChecksum(); checksum != "" {
			w.Header().Set(caChecksumHeader, checksum)
		}
		token := bearerToken(r)
		// A client that keeps coming with wrong credentials has to wait before they are looked at again; its neighbours behind the same address do not.
		if !s.machines.known(token) && s.failures.Empty(ratelimit.ClientKey(r)) {
			s.writeStatus(w, r, &refusal{http.StatusTooManyRequests, "too many requests with wrong credentials", 5 * time.Second})
			return
		}
		m, err := s.machines.authenticate(r.Context(), token)
		if errors.Is(err, errUnauthorized) {
			s.failures.Take(ratelimit.ClientKey(r))
		}
		if err != nil {
			s.writeStatus(w, r, err)
			return
		}
		connlimit.Trust(r.Context())
		next(w, r.WithContext(context.WithValue(r.Context(), machineContextKey{}, m)), m)
	}
}

// machineContextKey finds the machine in the context of its request.
type machineContextKey struct{}

// refuseAPI answers everything of the Kubernetes API that is not for machines.
func (s *Server) refuseAPI(w http.ResponseWriter, r *http.Request, m *machine) {
	s.writeStatus(w, r, refuse(http.StatusForbidden,
		"a machine reaches only its own plan Secret %s here, not %s %s", m.plan, r.Method, r.URL.Path))
}

func (s *Server) serveVersion(w http.ResponseWriter, r *http.Request, _ *machine) {
	version, err := s.version(r.Context())
	if err != nil {
		s.writeStatus(w, r, fmt.Errorf("asking the API for its version: %w", err))
		return
	}
	writeJSON(w, http.StatusOK, version)
}
