package integration

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/testenv"
)

type unexpected struct {
	code int
	body string
}

func (u *unexpected) Error() string { return fmt.Sprintf("%d %s", u.code, u.body) }

// registered registers a machine and returns a client with its credentials.
func (e *gatewayEnv) registered(id string) (machine *kubernetes.Clientset, config *rest.Config, key types.NamespacedName) {
	e.t.Helper()
	code, body := e.register(e.token, id, machineSecret)
	if code != http.StatusOK {
		e.t.Fatalf("registering %s: %d %s", id, code, body)
	}
	e.awaitAccepted(body)
	config, namespace, name := machineConfig(e.t, body)
	machine, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.t.Fatal(err)
	}
	return machine, config, types.NamespacedName{Namespace: namespace, Name: name}
}

func TestGatewayPlanSecret(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	machine, _, key := e.registered("m1")
	_, _, other := e.registered("m2")
	ctx := t.Context()
	secrets := machine.CoreV1().Secrets(key.Namespace)
	own := metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name}

	if version, err := machine.Discovery().ServerVersion(); err != nil || version.GitVersion == "" {
		t.Errorf("version: %v, %v", version, err)
	}
	secret, err := secrets.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil || string(secret.Data["plan"]) != "{}" {
		t.Fatalf("get: %v, %v", secret, err)
	}
	list, err := secrets.List(ctx, own)
	if err != nil || len(list.Items) != 1 || list.ResourceVersion == "" {
		t.Fatalf("list: %v, %v", list, err)
	}

	t.Run("refused", func(t *testing.T) {
		_, getOther := machine.CoreV1().Secrets(other.Namespace).Get(ctx, other.Name, metav1.GetOptions{})
		_, listAll := secrets.List(ctx, metav1.ListOptions{})
		_, listOther := secrets.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + other.Name})
		_, watchAll := secrets.Watch(ctx, metav1.ListOptions{})
		_, everywhere := machine.CoreV1().Secrets("").List(ctx, own)
		_, create := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
		_, patch := secrets.Patch(ctx, key.Name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		_, namespaces := machine.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		for name, err := range map[string]error{
			"get another machine's": getOther, "list all": listAll, "list another machine's": listOther, "watch all": watchAll,
			"list everywhere": everywhere, "create": create, "patch": patch, "delete": secrets.Delete(ctx, key.Name, metav1.DeleteOptions{}),
			"list namespaces": namespaces,
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("update", func(t *testing.T) {
		secret, err := secrets.Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before := &corev1.Secret{}
		if err := e.client.Get(ctx, key, before); err != nil {
			t.Fatal(err)
		}
		stale := secret.DeepCopy()
		secret.Data["applied-checksum"] = []byte("sum")
		secret.Data["probe-statuses"] = []byte("{}")
		written, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
		if err != nil || string(written.Data["applied-checksum"]) != "sum" || written.ResourceVersion == secret.ResourceVersion {
			t.Fatalf("update: %v, %v", written, err)
		}
		again, err := secrets.Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil || again.ResourceVersion != written.ResourceVersion {
			t.Errorf("a machine does not see what it wrote: %v", err)
		}
		real := &corev1.Secret{}
		if err := e.client.Get(ctx, key, real); err != nil || string(real.Data["applied-checksum"]) != "sum" ||
			string(real.Data["plan"]) != "{}" || real.Labels["kept"] != "yes" {
			t.Errorf("in the API: %v, %v", real, err)
		}
		checkMetadataKept(t, before, real)
		stale.Data["applied-checksum"] = []byte("late")
		if _, err := secrets.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("with an old version: %v", err)
		}
		noted := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"noted":"yes"}},"data":{"appliedPlan":"e30="}}`))
		if err := e.client.Patch(ctx, real, noted); err != nil {
			t.Fatal(err)
		}
		written.Data["applied-checksum"] = []byte("late")
		if written, err = secrets.Update(ctx, written, metav1.UpdateOptions{}); err != nil || written.Annotations["noted"] != "yes" ||
			string(written.Data["applied-checksum"]) != "late" || string(written.Data["appliedPlan"]) != "{}" {
			t.Fatalf("with the version from before the hub's note: %v, %v", written, err)
		}
		same, err := secrets.Update(ctx, written, metav1.UpdateOptions{})
		if err != nil || same.ResourceVersion != written.ResourceVersion {
			t.Errorf("without a change: %v, %v", same, err)
		}
		unconditional := written.DeepCopy()
		unconditional.ResourceVersion = ""
		delete(unconditional.Data, "probe-statuses")
		removed, err := secrets.Update(ctx, unconditional, metav1.UpdateOptions{})
		if err != nil || removed.Data["probe-statuses"] != nil || string(removed.Data["applied-checksum"]) != "late" {
			t.Errorf("without a version: %v, %v", removed, err)
		}
		for change, apply := range map[string]func(*corev1.Secret){
			"key plan ":      func(s *corev1.Secret) { s.Data["plan"] = []byte(`{"files":[]}`) },
			"key extra ":     func(s *corev1.Secret) { s.Data["extra"] = []byte("x") },
			"label kept ":    func(s *corev1.Secret) { delete(s.Labels, "kept") },
			"annotation me ": func(s *corev1.Secret) { s.Annotations["me"] = "x" },
		} {
			forged := removed.DeepCopy()
			forged.Data["applied-checksum"] = []byte("forged")
			apply(forged)
			if _, err := secrets.Update(ctx, forged, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), change) {
				t.Errorf("changing %s: %v", change, err)
			}
		}
		huge := removed.DeepCopy()
		huge.Data["applied-output"] = make([]byte, 3<<20)
		if _, err := secrets.Update(ctx, huge, metav1.UpdateOptions{}); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("too large: %v", err)
		}
	})

	t.Run("watch", func(t *testing.T) {
		list, err := secrets.List(ctx, own)
		if err != nil {
			t.Fatal(err)
		}
		options := own
		options.ResourceVersion = list.ResourceVersion
		events, err := secrets.Watch(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		e.setPlan(key, "one")
		expectEvent(t, events, watch.Modified, "one")
		// Missed while away: the next watch begins with it.
		e.setPlan(key, "two")
		expectEvent(t, events, watch.Modified, "two")
		late, err := secrets.Watch(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		defer late.Stop()
		expectEvent(t, late, watch.Modified, "two")

		if err := e.client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
			t.Fatal(err)
		}
		expectEvent(t, events, watch.Deleted, "two")
		if _, err := secrets.Get(ctx, key.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after the deletion: %v", err)
		}
		ahead := own
		ahead.ResourceVersion = "999999999"
		if _, err := secrets.Watch(ctx, ahead); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from the future: %v", err)
		}
	})
}

// TestGatewayInformer: informers of client-go work with the gateway, and the deletion of a machine ends its watch.
func TestGatewayInformer(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	machine, _, key := e.registered("m1")
	factory := informers.NewSharedInformerFactoryWithOptions(machine, 0, informers.WithNamespace(key.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + key.Name }))
	informer := factory.Core().V1().Secrets()
	plans := make(chan string, 100)
	note := func(obj any) {
		if secret, ok := obj.(*corev1.Secret); ok {
			plans <- string(secret.Data["plan"])
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note,
		UpdateFunc: func(_, obj any) { note(obj) }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory.Start(ctx.Done())
	expectPlan(t, plans, "{}")
	for i := range 5 {
		plan := fmt.Sprint("plan ", i)
		e.setPlan(key, plan)
		expectPlan(t, plans, plan)
	}

	// Another replica takes over: the machine goes on where it was.
	e.setPlan(key, "last")
	expectPlan(t, plans, "last")
	cancel()

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	events, err := machine.CoreV1().Secrets(key.Namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	expectEvent(t, events, watch.Added, "last")
	if err := e.client.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	select {
	case _, open := <-events.ResultChan():
		if open {
			t.Error("an event after the machine was deleted")
		}
	case <-time.After(testenv.Patience):
		t.Error("the watch of a deleted machine stays open")
	}
	if _, err := machine.CoreV1().Secrets(key.Namespace).Get(t.Context(), key.Name, metav1.GetOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a deleted machine reads its Secret: %v", err)
	}
}

// TestGatewayWatchProtocol checks what client-go hides: bookmarks that end the initial events, and clients that ask for protobuf.
func TestGatewayWatchProtocol(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	_, config, key := e.registered("m1")
	query := "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" +
		"&timeoutSeconds=1&fieldSelector=metadata.name%3D" + key.Name
	code, body := e.get("/api/v1/namespaces/"+key.Namespace+"/secrets"+query, map[string]string{
		"Authorization": "Bearer " + config.BearerToken, "Accept": "application/vnd.kubernetes.protobuf, */*",
	})
	lines := strings.Split(body, "\n")
	if code != http.StatusOK || len(lines) != 2 || !strings.Contains(lines[0], `"type":"ADDED"`) ||
		!strings.Contains(lines[1], `"type":"BOOKMARK"`) ||
		!strings.Contains(lines[1], metav1.InitialEventsAnnotationKey) {
		t.Errorf("%d\n%s", code, body)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		e.settings.ServerURL+"/api/v1/namespaces/"+key.Namespace+"/secrets/"+key.Name, strings.NewReader("kind: Secret"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+config.BearerToken)
	request.Header.Set("Content-Type", "application/yaml")
	response, err := e.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("an update in YAML: %d %s", response.StatusCode, answer)
	}
	watching, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	// The gateway stops: a watch ends at once, and does not hold it up.
	stream, err := watching.Get(e.settings.ServerURL + "/api/v1/namespaces/" + key.Namespace +
		"/secrets?watch=1&fieldSelector=metadata.name%3D" + key.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	e.stop()
	<-e.stopped
	// One that held it up would be cut off in the end.
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the watch was cut off: %v", err)
	}
}

// TestGatewaySharesOneWatch is not parallel, since it counts all watches of the API server.
func TestGatewaySharesOneWatch(t *testing.T) {
	e := startGateway(t, apiServer(t))
	e.runControllers()
	const machines = 12
	before := 0
	var all []watch.Interface
	for i := range machines {
		if i == 1 {
			before = e.secretWatches() // what the gateway watches for itself has begun for sure when it has served a machine
		}
		machine, _, key := e.registered(fmt.Sprint("m", i))
		events, err := machine.CoreV1().Secrets(key.Namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		expectEvent(t, events, watch.Added, "{}")
		all = append(all, events)
	}
	if after := e.secretWatches(); after > before {
		t.Errorf("%d machines more cause %d watches of Secrets at the API server", machines-1, after-before)
	}
	if len(all) != machines {
		t.Errorf("%d watches", len(all))
	}
}

// secretWatches counts the watches of Secrets at the API server.
func (e *gatewayEnv) secretWatches() int {
	e.t.Helper()
	admin, err := kubernetes.NewForConfig(e.config)
	if err != nil {
		e.t.Fatal(err)
	}
	raw, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	count := -1
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `resource="secrets"`) &&
			strings.Contains(line, `verb="WATCH"`) {
			var n float64
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &n); err == nil {
				count = max(count, 0) + int(n)
			}
		}
	}
	if count < 0 {
		e.t.Fatal("the API server does not tell how many watches of Secrets it has")
	}
	return count
}

// setPlan writes a plan as the hub does.
func (e *gatewayEnv) setPlan(key types.NamespacedName, plan string) {
	e.t.Helper()
	patch := fmt.Sprintf(`{"data":{"plan":%q}}`, base64.StdEncoding.EncodeToString([]byte(plan)))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := e.client.Patch(e.t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		e.t.Fatal(err)
	}
}

func expectEvent(t *testing.T, events watch.Interface, want watch.EventType, plan string) {
	t.Helper()
	select {
	case event, open := <-events.ResultChan():
		secret, ok := event.Object.(*corev1.Secret)
		if !open || !ok || event.Type != want || string(secret.Data["plan"]) != plan {
			t.Fatalf("event %s %v, want %s with the plan %q", event.Type, event.Object, want, plan)
		}
	case <-time.After(testenv.Patience):
		t.Fatalf("no event %s with the plan %q", want, plan)
	}
}

func expectPlan(t *testing.T, plans <-chan string, want string) {
	t.Helper()
	deadline := time.After(testenv.Patience)
	for {
		select {
		case got := <-plans:
			if got == want {
				return
			}
		case <-deadline:
			t.Fatalf("the plan %q did not arrive", want)
		}
	}
}
