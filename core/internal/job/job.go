// Package job makes the Kubernetes Job of an attempt. It is pure: the same input gives the same Job.
package job

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// RuntimeMargin is what the pod's own deadline grants beyond the maximal runtime. Core counts the running time and stops
// the attempt; the pod's deadline is the backstop for the time when core is not there.
const RuntimeMargin = int64(60)

// Input is all that a Job depends on.
type Input struct {
	Installation string // id of this installation
	Version      process.Version
	Attempt      process.Attempt // ID, JobName and Namespace are used
	// QueueName is the cluster's Kueue LocalQueue; a queue that the version names goes first. Empty: none.
	QueueName string
	// MaxRuntime is the cluster's limit in seconds; nil: none.
	MaxRuntime *int64
	// PullSecrets name Secrets in the namespace that hold registry credentials.
	PullSecrets []string
	// Env is added before the user's own variables; values are literal. A variable that the user sets too is left out.
	Env []process.EnvVar
	// StorageSecret is the Secret in the namespace that SecretEnv takes its values from; empty: none.
	StorageSecret string
	// SecretEnv is added like Env.
	SecretEnv []SecretVar
}

// SecretVar is a variable whose value is one key of the Secret of storage.
type SecretVar struct{ Name, Key string }

// Build returns the Job of an attempt. It fails only on quantities that are not quantities: the submission was checked
// before it was stored.
func Build(in Input) (*batchv1.Job, error) {
	spec := in.Version.Spec
	resources, err := resourcesOf(spec)
	if err != nil {
		return nil, err
	}
	meta, err := metaOf(in)
	if err != nil {
		return nil, err
	}

	pod := corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		NodeSelector:                 spec.NodeSelector,
		Containers: []corev1.Container{{
			Name:            MainContainer,
			Image:           spec.Image,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Command:         literals(spec.Command),
			Args:            literals(spec.Args),
			WorkingDir:      spec.WorkingDir,
			Env:             envOf(in),
			Resources:       resources,
		}},
	}
	for _, name := range in.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if limit := MaxRuntime(spec.MaxRuntimeSeconds, in.MaxRuntime); limit != nil {
		pod.ActiveDeadlineSeconds = new(min(*limit, math.MaxInt32-RuntimeMargin) + RuntimeMargin)
	}

	j := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			Parallelism:  new(int32(1)),
			Completions:  new(int32(1)),
			BackoffLimit: new(max(spec.Retries, 0)),
			// A replacement starts only when the pod before it has ended: two never run at once.
			PodReplacementPolicy: new(batchv1.Failed),
			// A drained node or a preemption is not the work's fault and eats none of its retries.
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action: batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				}},
			}}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: ownerLabels(in), Annotations: meta.Annotations},
				Spec:       pod,
			},
		},
	}
	if in.StorageSecret != "" {
		j.Labels[LabelStorageSecret] = in.StorageSecret // the watch shows labels, and no environment
	}
	if queue := QueueName(in); queue != "" {
		j.Labels[LabelQueue] = queue
		j.Spec.Suspend = new(true) // Kueue resumes it on admission
	}
	return j, nil
}

// QueueName is the Kueue LocalQueue that the Job of in waits in; empty: none.
func QueueName(in Input) string {
	if in.Version.Spec.QueueName != "" {
		return in.Version.Spec.QueueName
	}
	return in.QueueName
}

// MaxRuntime returns the smaller of two limits in seconds; nil means no limit.
func MaxRuntime(a, b *int64) *int64 {
	switch {
	case a == nil:
		return b
	case b == nil || *a <= *b:
		return a
	default:
		return b
	}
}

// Owned says whether an object with these labels is the attempt's own, of this installation.
func Owned(labels map[string]string, installation, attemptID string) bool {
	return attemptID != "" && labels[LabelAttempt] == LabelValue(attemptID) &&
		labels[LabelInstallation] == LabelValue(installation)
}

// SecretLabels are the labels of a Secret that is made for Jobs of a project.
func SecretLabels(installation, projectID, backendID string) map[string]string {
	return map[string]string{
		LabelInstallation: LabelValue(installation), LabelProject: LabelValue(projectID), LabelStorage: LabelValue(backendID),
	}
}

// OwnedSecret says whether a Secret with these labels was made by this installation for Jobs.
func OwnedSecret(labels map[string]string, installation string) bool {
	return labels[LabelStorage] != "" && labels[LabelInstallation] == LabelValue(installation)
}

// Selector selects every Job and pod of an installation.
func Selector(installation string) string { return LabelInstallation + "=" + LabelValue(installation) }

func metaOf(in Input) (metav1.ObjectMeta, error) {
	annotations := map[string]string{AnnotationProcess: in.Version.ProcessName}
	if labels := in.Version.Spec.Labels; len(labels) > 0 {
		text, err := json.Marshal(labels)
		if err != nil {
			return metav1.ObjectMeta{}, fmt.Errorf("labels of the version: %w", err)
		}
		annotations[AnnotationLabels] = string(text)
	}
	name := in.Attempt.JobName
	if name == "" {
		name = Name(in.Version.ProcessName, in.Attempt.ID)
	}
	return metav1.ObjectMeta{
		Name: name, Namespace: in.Attempt.Namespace, Labels: ownerLabels(in), Annotations: annotations,
	}, nil
}

// ownerLabels returns a new map at each call: the Job's gets the queue as well, the pod's does not.
func ownerLabels(in Input) map[string]string {
	return map[string]string{
		LabelInstallation: LabelValue(in.Installation),
		LabelProject:      LabelValue(in.Version.ProjectID),
		LabelVersion:      LabelValue(in.Version.ID),
		LabelAttempt:      LabelValue(in.Attempt.ID),
	}
}

func envOf(in Input) []corev1.EnvVar {
	own := []process.EnvVar{
		{Name: "NAGELFLUH_PROJECT", Value: in.Version.ProjectID},
		{Name: "NAGELFLUH_VERSION", Value: in.Version.ID},
		{Name: "NAGELFLUH_ATTEMPT", Value: in.Attempt.ID},
	}
	own = append(own, in.Env...)
	users := make(map[string]bool, len(in.Version.Spec.Env))
	for _, e := range in.Version.Spec.Env {
		users[e.Name] = true
	}
	env := make([]corev1.EnvVar, 0, len(own)+len(in.SecretEnv)+len(in.Version.Spec.Env))
	for _, e := range own {
		if !users[e.Name] {
			env = append(env, corev1.EnvVar{Name: e.Name, Value: literal(e.Value)})
		}
	}
	for _, e := range in.SecretEnv {
		if !users[e.Name] {
			env = append(env, corev1.EnvVar{Name: e.Name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: in.StorageSecret}, Key: e.Key,
			}}})
		}
	}
	for _, e := range in.Version.Spec.Env {
		env = append(env, corev1.EnvVar{Name: e.Name, Value: literal(e.Value)})
	}
	return env
}

// literal keeps text as the user typed it: Kubernetes turns "$$" into "$" and expands "$(NAME)".
func literal(s string) string { return strings.ReplaceAll(s, "$", "$$") }

func literals(in []string) []string {
	if in == nil {
		return nil
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = literal(s)
	}
	return out
}

// resourcesOf keeps what the version says and, for extended resources, makes request and limit equal when only one is
// given: the API server refuses anything else.
func resourcesOf(spec process.Spec) (corev1.ResourceRequirements, error) {
	requests, err := quantities("requests", spec.Requests)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	limits, err := quantities("limits", spec.Limits)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	requests, limits = evenOut(requests, limits), evenOut(limits, requests)
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}, nil
}

// evenOut returns list with the extended resources that only other has.
func evenOut(list, other corev1.ResourceList) corev1.ResourceList {
	for name, q := range other {
		if _, there := list[name]; there || !extended(name) {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = q
	}
	return list
}

// extended says whether a resource is one that a device plugin or an admin brings, such as nvidia.com/gpu.
func extended(name corev1.ResourceName) bool {
	domain, _, found := strings.Cut(string(name), "/")
	return found && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

func quantities(field string, in map[string]string) (corev1.ResourceList, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make(corev1.ResourceList, len(in))
	for name, text := range in {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %q is no Kubernetes quantity", field, name, text)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}
