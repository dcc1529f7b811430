package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/agent/config"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

const (
	agentsNamespace = "scale-agents"
	// writers is how many requests that write are made at once.
	writers = 32
	// planSize is about the size of a plan of a worker.
	planSize = 4 << 10
	// planPath is the path of the file in a plan, before the version of the plan.
	planPath = "/var/lib/scale/"
)

// identities are what agents connect with: a plan Secret with its RKEBootstrap, its ServiceAccount and token. They have no Machine, so
// that ten thousand are made within minutes.
type identities struct {
	client client.Client
	// url and caCerts are those of the gateway.
	url     string
	caCerts []byte
}

// create creates n of them, and returns their connection info by the name of the machine.
func (i identities) create(ctx context.Context, n int) (map[string]config.Connection, error) {
	if err := i.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentsNamespace}}); err != nil {
		return nil, err
	}
	connections, mu := map[string]config.Connection{}, sync.Mutex{}
	err := each(ctx, n, func(ctx context.Context, k int) error {
		name := agentName(k)
		if err := i.createOne(ctx, name); err != nil {
			return err
		}
		connection, err := i.connection(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		connections[name] = connection
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("creating the identities of agents: %w", err)
	}
	return connections, nil
}

// createOne creates what the agent of a machine connects with. The controllers leave it alone, since it is paused.
func (i identities) createOne(ctx context.Context, name string) error {
	labels := map[string]string{rkev1.BootstrapNameLabel: name}
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{
		Namespace: agentsNamespace, Name: name, Annotations: map[string]string{clusterv1.PausedAnnotation: "true"},
	}}
	if err := i.client.Create(ctx, bootstrap); err != nil {
		return err
	}
	owned := func(name string, owner metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: agentsNamespace, Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner}}
	}
	byBootstrap := *metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))
	plan := &corev1.Secret{
		ObjectMeta: owned(rkev1.PlanSecretName(name), byBootstrap), Type: rkev1.MachinePlanSecretType,
		Data: map[string][]byte{plans.KeyPlan: agentPlan("first")},
	}
	account := &corev1.ServiceAccount{ObjectMeta: owned(rkev1.PlanSecretName(name), byBootstrap)}
	for _, object := range []client.Object{plan, account} {
		if err := i.client.Create(ctx, object); err != nil {
			return err
		}
	}
	byAccount := *metav1.NewControllerRef(account, corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	token := &corev1.Secret{ObjectMeta: owned(rkev1.PlanTokenSecretName(name), byAccount), Type: corev1.SecretTypeServiceAccountToken}
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: account.Name}
	return i.client.Create(ctx, token)
}

// connection is what the hub would have sent at the registration.
func (i identities) connection(ctx context.Context, name string) (config.Connection, error) {
	var secret corev1.Secret
	err := poll(ctx, "the token of "+name, func() error {
		key := client.ObjectKey{Namespace: agentsNamespace, Name: rkev1.PlanTokenSecretName(name)}
		if err := i.client.Get(ctx, key, &secret); err != nil {
			return err
		}
		if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errors.New("it is not written yet")
		}
		return nil
	})
	if err != nil {
		return config.Connection{}, err
	}
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: i.url, CertificateAuthorityData: i.caCerts}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"agent": {Token: string(secret.Data[corev1.ServiceAccountTokenKey])}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "agent", Namespace: agentsNamespace}},
		CurrentContext: "hub",
	})
	return config.Connection{KubeConfig: string(kubeconfig), Namespace: agentsNamespace, SecretName: rkev1.PlanSecretName(name)}, err
}

// deliver gives each step-th agent a plan of a version, and returns how many got one.
func (i identities) deliver(ctx context.Context, n, step int, version string) (int, error) {
	count := (n + step - 1) / step
	return count, each(ctx, count, func(ctx context.Context, k int) error {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: rkev1.PlanSecretName(agentName(k * step))}}
		patch, err := json.Marshal(map[string]any{"data": map[string][]byte{plans.KeyPlan: agentPlan(version)}})
		if err != nil {
			return err
		}
		return i.client.Patch(ctx, secret, client.RawPatch("application/merge-patch+json", patch))
	})
}

func agentName(k int) string { return fmt.Sprintf("agent-%d", k) }

// agentPlan is a plan of a version.
func agentPlan(version string) []byte {
	content := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), planSize/4*3))
	raw, _ := json.Marshal(plans.Plan{Files: []plans.File{{Path: planPath + version, Content: content}}}) // strings only
	return raw
}

// planVersion is the version that a plan was made with, or empty.
func planVersion(raw []byte) string {
	plan, err := plans.Decode(raw)
	if err != nil || len(plan.Files) != 1 {
		return ""
	}
	return strings.TrimPrefix(plan.Files[0].Path, planPath)
}

// each calls do with the numbers below n, some at a time.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for k := range n {
		group.Go(func() error { return do(ctx, k) })
	}
	return group.Wait()
}
