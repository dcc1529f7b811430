package servingcert

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// TestWarnsOfExpiry: the log says once a day that the authority in use expires soon, and when.
func TestWarnsOfExpiry(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		left  time.Duration
		lines int // in two days
	}{
		"years left":                  {pki.CALifetime, 0},
		"60 days left":                {60 * day, 3},
		"soon less than 90 days left": {91*day - time.Hour, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: tt.left}, nil, time.Now())
				must(t, err)
				key, err := ca.KeyPEM()
				must(t, err)
				i := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now}
				i.client = fake.NewClientBuilder().WithObjects(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: SecretName},
					Data:       map[string][]byte{caCertKey: ca.CertPEM(), caKeyKey: key},
				}).Build()
				must(t, i.refresh(t.Context()))
				end := ca.Cert.NotAfter
				if tt.left > pki.LeafLifetime {
					end = time.Now().Add(pki.LeafLifetime)
				}
				if got := i.ServesUntil(); !got.Equal(end.Truncate(time.Second)) {
					t.Errorf("the serving certificate ends at %s, want %s", got, end)
				}
				var lines []string
				ctx, cancel := context.WithCancel(t.Context())
				go i.Run(ctx, funcr.New(func(_, args string) {
					if strings.Contains(args, "expires soon") {
						lines = append(lines, args)
					}
				}, funcr.Options{}))
				time.Sleep(2*day + time.Minute)
				cancel()
				synctest.Wait()
				if len(lines) != tt.lines {
					t.Fatalf("%d lines, want %d: %v", len(lines), tt.lines, lines)
				}
				if want := ca.Cert.NotAfter.Format(time.DateOnly); len(lines) > 0 && !strings.Contains(lines[0], want) {
					t.Errorf("%s does not say %s", lines[0], want)
				}
			})
		})
	}
}

// TestStoredErrors: what an operator has to correct in the Secret is distinguished from an API that does not answer.
func TestStoredErrors(t *testing.T) {
	i := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now}
	good, err := i.newSecret(t.Context())
	must(t, err)
	mistyped, damaged := good.DeepCopy(), good.DeepCopy()
	mistyped.Annotations = map[string]string{CARotationAnnotation: "prepared"}
	damaged.Data[caKeyKey] = []byte("x")
	for name, secret := range map[string]*corev1.Secret{"a mistyped step": mistyped, "a damaged authority": damaged} {
		c := fake.NewClientBuilder().WithObjects(secret).Build()
		starting := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now, client: c}
		if err := starting.refresh(t.Context()); !isStored(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	missing := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now, client: fake.NewClientBuilder().Build(), caSecret: "ca"}
	if err := missing.refresh(t.Context()); !isStored(err) {
		t.Errorf("the Secret of --gateway-ca-secret is missing: got %v", err)
	}
}

func isStored(err error) bool {
	_, is := errors.AsType[pki.StoredError](err)
	return is
}

// TestExpiredAuthority: a hub whose authority has expired starts, and says so, since the API of an embedded hub is needed to replace the
// authority. It writes nothing until then.
func TestExpiredAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: 30 * 24 * time.Hour}, nil, time.Now())
		must(t, err)
		key, err := ca.KeyPEM()
		must(t, err)
		c := fake.NewClientBuilder().WithObjects(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: SecretName},
			Data:       map[string][]byte{caCertKey: ca.CertPEM(), caKeyKey: key},
		}).Build()
		secret := func() *corev1.Secret {
			secret := &corev1.Secret{}
			must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: SecretName}, secret))
			return secret
		}
		start := func() *Identity {
			i := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now, client: c}
			must(t, i.refresh(t.Context()))
			return i
		}
		start()
		time.Sleep(31 * 24 * time.Hour)
		before, expired := secret().ResourceVersion, start()
		var log strings.Builder
		expired.warnOfExpiry(funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}))
		if !strings.Contains(log.String(), "has expired") || !strings.Contains(log.String(), CARotationAnnotation) {
			t.Errorf("the log says %q", log.String())
		}
		if now := secret().ResourceVersion; now != before {
			t.Error("the Secret was written")
		}
		for _, step := range []string{RotationPrepare, RotationSwitch} {
			asked := secret()
			asked.Annotations = map[string]string{CARotationAnnotation: step}
			must(t, c.Update(t.Context(), asked))
			expired = start()
		}
		if leaf := expired.serving.Load().Leaf; leaf.NotAfter.Before(time.Now()) || expired.expires.Before(time.Now()) {
			t.Errorf("after the rotation the gateway serves until %s", leaf.NotAfter)
		}
	})
}

// TestClockJumps: a hub that was suspended until its certificates have expired renews them within minutes, and so does one whose clock was
// ahead. One whose clock falls behind the beginning of its authority serves what it has: the clocks of machines are right.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		i := &Identity{namespace: "ns", names: []string{"localhost"}, now: now, client: fake.NewClientBuilder().Build()}
		must(t, i.refresh(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go i.Run(ctx, logr.Discard())
		const day = 24 * time.Hour
		for _, jump := range []struct {
			to      time.Duration
			renewed bool
		}{{to: 0}, {to: 3 * day}, {to: 400 * day, renewed: true}, {to: -3650 * day}, {to: 0, renewed: true}} {
			before := i.serving.Load().Leaf
			ahead.Store(int64(jump.to))
			time.Sleep(2 * checkInterval)
			synctest.Wait()
			if serving := i.serving.Load().Leaf; serving.Equal(before) == jump.renewed {
				t.Errorf("at %s the gateway serves with a certificate from %s to %s", now(), serving.NotBefore, serving.NotAfter)
			}
			if peer := i.peer.Load().Leaf; now().Before(peer.NotBefore) || now().After(peer.NotAfter) {
				t.Errorf("at %s this replica has a certificate from %s to %s", now(), peer.NotBefore, peer.NotAfter)
			}
		}
	})
}

// TestDeletedSecret: a hub that runs puts back the Secret that somebody has deleted, since machines trust the authority in it. One that was
// put back from a copy meanwhile is left as it is.
func TestDeletedSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().Build()
		key := client.ObjectKey{Namespace: "ns", Name: SecretName}
		read := func() *corev1.Secret {
			secret := &corev1.Secret{}
			must(t, c.Get(t.Context(), key, secret))
			return secret
		}
		i := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now, client: c}
		must(t, i.refresh(t.Context()))
		before := read()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var log strings.Builder
		go i.Run(ctx, funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}))

		time.Sleep(time.Hour + 10*time.Second)
		must(t, c.Delete(t.Context(), read()))
		time.Sleep(2 * checkInterval)
		synctest.Wait()
		after := read()
		for _, name := range []string{caCertKey, caKeyKey, servingCertKey, servingKeyKey} {
			if len(before.Data[name]) == 0 || !bytes.Equal(before.Data[name], after.Data[name]) {
				t.Errorf("%s is not what it was", name)
			}
		}
		if !strings.Contains(log.String(), "was deleted; putting it back") {
			t.Errorf("the log says %q", log.String())
		}

		must(t, c.Delete(t.Context(), after))
		copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: SecretName, Labels: map[string]string{"of": "a backup"}},
			Data: before.Data}
		must(t, c.Create(t.Context(), copied))
		time.Sleep(2 * refreshInterval)
		synctest.Wait()
		if read().Labels["of"] != "a backup" || i.refresh(t.Context()) != nil {
			t.Error("the copy was replaced, or is refused")
		}
	})
}
