package capi

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// replicas are those of one hub, whose Secret is in one API server.
type replicas struct {
	t      *testing.T
	client client.Client
	// reads counts the reads of the Secret; fault, if set, fails them.
	reads int
	fault error
	// events tell every replica of changes.
	informers *informertest.FakeInformers
	events    *controllertest.FakeInformer
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	scheme := fakeclient.Scheme(t, corev1.AddToScheme)
	r := &replicas{t: t, informers: &informertest.FakeInformers{Scheme: scheme}}
	var err error
	if r.events, err = r.informers.FakeInformerFor(t.Context(), &corev1.Secret{}); err != nil {
		t.Fatal(err)
	}
	notify := func(o client.Object, err error) error {
		if s, ok := o.(*corev1.Secret); ok && err == nil {
			r.changed(s)
		}
		return err
	}
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if r.reads++; r.fault != nil {
				return r.fault
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return notify(o, c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return notify(o, c.Update(ctx, o, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			err := c.Delete(ctx, o, opts...)
			if err == nil {
				r.events.Delete(o)
			}
			return err
		},
	}).Build()
	return r
}

// changed tells of a Secret as the manager's cache does, which drops its content.
func (r *replicas) changed(s *corev1.Secret) {
	metadata := &corev1.Secret{ObjectMeta: s.ObjectMeta, Type: s.Type}
	r.events.Update(metadata, metadata)
}

// prepare is a replica that starts.
func (r *replicas) prepare(host string) *Certificate {
	r.t.Helper()
	certificate, err := EnsureCertificate(r.t.Context(), r.client, "drover-system", []string{host})
	if err != nil {
		r.t.Fatal(err)
	}
	certificate.secrets = r.informers
	return certificate
}

// run is a replica that runs, and the channel with the error that it ends with.
func (r *replicas) run(host string) (*Certificate, <-chan error) {
	r.t.Helper()
	certificate, ended := r.prepare(host), make(chan error, 1)
	go func() { ended <- certificate.Start(r.t.Context()) }()
	synctest.Wait()
	return certificate, ended
}

// secret reads the Secret.
func (r *replicas) secret() *corev1.Secret {
	r.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "drover-system", Name: CertificateSecret}}
	if err := r.client.Get(r.t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		r.t.Fatal(err)
	}
	return secret
}

func (r *replicas) delete() {
	r.t.Helper()
	if err := r.client.Delete(r.t.Context(), r.secret()); err != nil {
		r.t.Fatal(err)
	}
}

// hasEnded checks, at this moment, whether a replica has ended for another authority.
func (r *replicas) hasEnded(ended <-chan error, want bool) {
	r.t.Helper()
	synctest.Wait()
	select {
	case err := <-ended:
		if !want || !errors.Is(err, errOtherAuthority) {
			r.t.Errorf("ended with %v", err)
		}
	default:
		if want {
			r.t.Error("still serves with the former authority")
		}
	}
}

func leaf(t *testing.T, c *Certificate) *x509.Certificate {
	t.Helper()
	pair, err := c.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// TestReplicasAgreeOnAuthority: after another authority a replica that serves with the former one ends at once, and has the new one when it
// starts again. Otherwise the API server's calls would fail there for as long as it runs.
func TestReplicasAgreeOnAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		running, ended := r.run("hub.example.com")
		time.Sleep(30 * 24 * time.Hour)
		r.hasEnded(ended, false)
		served := leaf(t, running)

		r.delete()
		r.hasEnded(ended, true)
		other, otherEnded := r.run("hub.example.com")
		r.hasEnded(otherEnded, false)
		if again := r.prepare("hub.example.com"); !bytes.Equal(again.CA, other.CA) || bytes.Equal(again.CA, running.CA) {
			t.Error("the replicas have different authorities")
		}
		if leaf(t, running) != served {
			t.Error("a certificate is served that nobody trusts")
		}
	})
}

// TestAuthorityReplaced: the Secret gets another authority without being deleted.
func TestAuthorityReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		running, ended := r.run("hub.example.com")
		served, secret := leaf(t, running), r.secret()
		secret.Data = nil
		if _, err := fill(secret, []string{"hub.example.com"}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := r.client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		r.hasEnded(ended, true)
		if leaf(t, running) != served {
			t.Error("a certificate is served that nobody trusts")
		}
	})
}

// TestAuthorityReplacedBeforeStart: what has changed before a replica watches is seen, too.
func TestAuthorityReplacedBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		certificate, ended := r.prepare("hub.example.com"), make(chan error, 1)
		r.delete()
		r.prepare("hub.example.com")
		go func() { ended <- certificate.Start(t.Context()) }()
		r.hasEnded(ended, true)
	})
}

// TestOtherSecrets: the Secret is read when it has changed, and at no other time.
func TestOtherSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		r.run("hub.example.com")
		before := r.reads
		for _, name := range [][2]string{{"drover-system", "drover-gateway-tls"}, {"fleet", CertificateSecret}} {
			r.changed(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name[0], Name: name[1]}})
		}
		time.Sleep(100 * 24 * time.Hour)
		if r.reads != before {
			t.Errorf("read %d times", r.reads-before)
		}
	})
}

// TestRenewal: a certificate is renewed in time, once, and the other replica serves with it at once.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		one, oneEnded := r.run("hub.example.com")
		time.Sleep(time.Minute)
		other, otherEnded := r.run("hub.example.com")
		first := leaf(t, one)
		for range 3 {
			before, reads := leaf(t, one), r.reads
			time.Sleep(pki.LeafLifetime * 3 / 4)
			now, others := leaf(t, one), leaf(t, other)
			if now.Equal(before) || !now.Equal(others) || now.Issuer.String() != first.Issuer.String() {
				t.Errorf("served by one until %s, by the other until %s, before until %s", now.NotAfter, others.NotAfter, before.NotAfter)
			}
			if r.reads-reads > 10 {
				t.Errorf("read %d times", r.reads-reads)
			}
		}
		r.hasEnded(oneEnded, false)
		r.hasEnded(otherEnded, false)
	})
}

// TestClockJumps: a certificate is renewed soon after the clock has passed its day, also where the time between did not pass for the hub,
// as on a virtual machine that was suspended.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		running, ended := r.run("hub.example.com")
		before := leaf(t, running)
		running.now = func() time.Time { return time.Now().Add(pki.LeafLifetime * 3 / 4) }
		time.Sleep(2 * checkInterval)
		if now := leaf(t, running); now.Equal(before) || !now.NotAfter.After(running.now().Add(pki.LeafLifetime/2)) {
			t.Errorf("served until %s, before until %s; it is %s", now.NotAfter, before.NotAfter, running.now())
		}
		r.hasEnded(ended, false)
	})
}

// TestAuthorityRenewed: near its end the authority is replaced, and the hub ends to register the new one.
func TestAuthorityRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		running, ended := r.run("hub.example.com")
		served := leaf(t, running)
		time.Sleep(pki.CALifetime * 6 / 10)
		r.hasEnded(ended, false)
		if leaf(t, running).Equal(served) {
			t.Error("the certificate was not renewed")
		}
		time.Sleep(pki.CALifetime * 2 / 10)
		r.hasEnded(ended, true)
		if again := r.prepare("hub.example.com"); bytes.Equal(again.CA, running.CA) {
			t.Error("the authority is the former one")
		}
	})
}

// TestReadFails: while the API server does not answer, the Secret is read again, after pauses.
func TestReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		_, ended := r.run("hub.example.com")
		secret, before := r.secret(), r.reads
		r.fault = errors.New("connection refused")
		if err := r.client.Delete(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if tried := r.reads - before; tried < 5 || tried > 100 {
			t.Errorf("read %d times within an hour", tried)
		}
		r.hasEnded(ended, false)
		r.fault = nil
		time.Sleep(maxRetryPause * 2)
		r.hasEnded(ended, true)
	})
}

// TestReplicasForOtherHosts: while replicas with another --webhook-url take over, each serves for its own host, and they do not write the
// Secret in turns.
func TestReplicasForOtherHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		one, oneEnded := r.run("old.example.com")
		other, otherEnded := r.run("new.example.com")
		version := r.secret().ResourceVersion
		time.Sleep(24 * time.Hour)
		if now := r.secret().ResourceVersion; now != version {
			t.Errorf("written: resource version %s, was %s", now, version)
		}
		for c, host := range map[*Certificate]string{one: "old.example.com", other: "new.example.com"} {
			if err := leaf(t, c).VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		r.hasEnded(oneEnded, false)
		r.hasEnded(otherEnded, false)
	})
}
