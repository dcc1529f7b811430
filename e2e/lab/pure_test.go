package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestParseRSS(t *testing.T) {
	got, err := parseRSS("Name:\thub\nVmHWM:\t  999 kB\nVmRSS:\t  2048 kB\nThreads:\t4\n")
	if err != nil || got != 2<<20 {
		t.Errorf("%d, %v", got, err)
	}
	for _, status := range []string{"", "Name:\thub\n", "VmRSS:\tmany kB\n"} {
		if _, err := parseRSS(status); err == nil {
			t.Errorf("%q: no error", status)
		}
	}
}

func TestReporter(t *testing.T) {
	var lines []string
	r := &reporter{report: func(s string) { lines = append(lines, s) }}
	for _, chunk := range []string{"one\ntw", "o\r 50%\r\n\n", "Error: no disk\nUsage\n", "rest"} {
		if n, err := r.Write([]byte(chunk)); err != nil || n != len(chunk) {
			t.Fatal(n, err)
		}
	}
	if diff := cmp.Diff([]string{"one", "two", "50%", "Error: no disk", "Usage"}, lines); diff != "" {
		t.Error(diff)
	}
	if got := r.tail(); got != "Error: no disk" {
		t.Errorf("tail is %q", got)
	}
	plain := &reporter{report: func(string) {}}
	_, _ = plain.Write([]byte("a\nb"))
	if got := plain.tail(); got != "a b" {
		t.Errorf("tail is %q", got)
	}
}

func TestConditionMessage(t *testing.T) {
	conditions := []metav1.Condition{{Type: "A", Message: "Waiting for a machine", Reason: "X"}, {Type: "B", Reason: "Y"},
		{Type: "C", Status: metav1.ConditionTrue}}
	for kind, want := range map[string]string{"A": "Waiting for a machine", "B": "Y", "C": "C is True", "D": "D is not known yet"} {
		if got := ConditionMessage(conditions, kind); got != want {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

func TestPodMessage(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
	if got := podMessage(pod); got != "pod hello is Pending" {
		t.Error(got)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Status: corev1.ConditionFalse, Message: "no node fits"}}
	if got := podMessage(pod); got != "pod hello: no node fits" {
		t.Error(got)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "not there"}}}}
	if got := podMessage(pod); got != "pod hello: ErrImageNeverPull not there" {
		t.Error(got)
	}
}

func TestHelloPodUsesTheImageOfTheDistribution(t *testing.T) {
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(helloYAML, pod); err != nil {
		t.Fatal(err)
	}
	if got := pod.Spec.Containers[0].Image; got != HelloImage {
		t.Error(got)
	}
}

func TestSchemeTakesAllKinds(t *testing.T) {
	if _, err := Scheme(); err != nil {
		t.Fatal(err)
	}
}

func TestRedactorTakesOutTokens(t *testing.T) {
	var out strings.Builder
	r := &redactor{to: &out}
	for _, chunk := range []string{"a COMMAND=sh -s - --server x --tok", "en abcdef --etcd\n--token=ghi", "jkl"} {
		if n, err := r.Write([]byte(chunk)); err != nil || n != len(chunk) {
			t.Fatal(n, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("a COMMAND=sh -s - --server x --token *** --etcd\n--token=***", out.String()); diff != "" {
		t.Error(diff)
	}
}
