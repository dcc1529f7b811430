package lab

import (
	"context"
	_ "embed"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

//go:embed hello.yaml
var helloYAML []byte

// RunHello makes a pod from an image that came with the installer image and waits until it answers.
func (l *Lab) RunHello(ctx context.Context, hub client.Client, cluster client.ObjectKey, limit time.Duration) (answer string, err error) {
	c, config, err := l.ClusterClient(ctx, hub, cluster)
	if err != nil {
		return "", err
	}
	get, err := newRawGetter(config)
	if err != nil {
		return "", err
	}
	err = l.WaitFor(ctx, "pod hello answers", limit, func(ctx context.Context) (bool, string) {
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict(helloYAML, pod); err != nil {
			return false, err.Error()
		}
		if err := c.Create(ctx, pod); err != nil && !apierrors.IsAlreadyExists(err) {
			return false, err.Error() // the namespace's ServiceAccount may not exist yet
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err.Error()
		}
		if pod.Status.Phase != corev1.PodRunning {
			return false, podMessage(pod)
		}
		answer, err = get(ctx, "/api/v1/namespaces/default/pods/hello:8080/proxy/")
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	return strings.TrimSpace(answer), err
}

func podMessage(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			return strings.TrimSpace("pod hello: " + w.Reason + " " + w.Message)
		}
	}
	for _, cond := range pod.Status.Conditions {
		if cond.Status == corev1.ConditionFalse && cond.Message != "" {
			return "pod hello: " + cond.Message
		}
	}
	return "pod hello is " + string(pod.Status.Phase)
}
