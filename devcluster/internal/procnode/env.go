package procnode

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// sources reads what env and envFrom refer to. A missing object is an error
// that satisfies apierrors.IsNotFound.
type sources interface {
	secret(ctx context.Context, namespace, name string) (map[string][]byte, error)
	configMap(ctx context.Context, namespace, name string) (map[string]string, error)
}

type apiSources struct{ client kubernetes.Interface }

func (s apiSources) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	object, err := s.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return object.Data, nil
}

func (s apiSources) configMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	object, err := s.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return object.Data, nil
}

// variables are environment variables in the order in which they were set first.
type variables struct {
	names  []string
	values map[string]string
}

func (v *variables) set(name, value string) {
	if _, found := v.values[name]; !found {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

// environ returns NAME=value strings, with a PATH, HOME, TMPDIR and HOSTNAME
// where the container has none. Nothing else of this process gets through.
func (v *variables) environ(home, hostname string) []string {
	for name, value := range map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": home, "TMPDIR": home, "HOSTNAME": hostname,
	} {
		if _, found := v.values[name]; !found {
			v.set(name, value)
		}
	}
	env := make([]string, 0, len(v.names))
	for _, name := range v.names {
		env = append(env, name+"="+v.values[name])
	}
	return env
}

// resolveEnv computes a container's variables as a kubelet does: envFrom first,
// then env in order, where $(NAME) is what was set before and $$ is a dollar.
func resolveEnv(ctx context.Context, pod *corev1.Pod, container *corev1.Container, from sources) (*variables, error) {
	result := &variables{values: map[string]string{}}
	for _, source := range container.EnvFrom {
		if err := addFrom(ctx, result, pod.Namespace, source, from); err != nil {
			return nil, err
		}
	}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			result.set(variable.Name, expand(variable.Value, result.values))
			continue
		}
		value, found, err := valueFrom(ctx, pod, container, variable.ValueFrom, from)
		if err != nil {
			return nil, err
		}
		if found {
			result.set(variable.Name, value)
		}
	}
	return result, nil
}

func expand(text string, values map[string]string) string {
	return expansion.Expand(text, expansion.MappingFuncFor(values))
}

func expandAll(texts []string, values map[string]string) []string {
	expanded := make([]string, len(texts))
	for i, text := range texts {
		expanded[i] = expand(text, values)
	}
	return expanded
}

func addFrom(ctx context.Context, result *variables, namespace string, source corev1.EnvFromSource, from sources) error {
	values := map[string]string{}
	switch {
	case source.ConfigMapRef != nil:
		data, err := from.configMap(ctx, namespace, source.ConfigMapRef.Name)
		if apierrors.IsNotFound(err) && isTrue(source.ConfigMapRef.Optional) {
			return nil
		}
		if err != nil {
			return err
		}
		values = data
	case source.SecretRef != nil:
		data, err := from.secret(ctx, namespace, source.SecretRef.Name)
		if apierrors.IsNotFound(err) && isTrue(source.SecretRef.Optional) {
			return nil
		}
		if err != nil {
			return err
		}
		for key, value := range data {
			values[key] = string(value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		result.set(source.Prefix+key, values[key])
	}
	return nil
}

func valueFrom(ctx context.Context, pod *corev1.Pod, container *corev1.Container, source *corev1.EnvVarSource, from sources) (value string, found bool, err error) {
	switch {
	case source.FieldRef != nil:
		value, err := field(pod, source.FieldRef.FieldPath)
		return value, true, err
	case source.ResourceFieldRef != nil:
		value, err := resource.ExtractContainerResourceValue(source.ResourceFieldRef, container)
		return value, true, err
	case source.SecretKeyRef != nil:
		ref := source.SecretKeyRef
		data, err := from.secret(ctx, pod.Namespace, ref.Name)
		if apierrors.IsNotFound(err) && isTrue(ref.Optional) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		if value, found := data[ref.Key]; found || isTrue(ref.Optional) {
			return string(value), found, nil
		}
		return "", false, fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.Key, pod.Namespace, ref.Name)
	case source.ConfigMapKeyRef != nil:
		ref := source.ConfigMapKeyRef
		data, err := from.configMap(ctx, pod.Namespace, ref.Name)
		if apierrors.IsNotFound(err) && isTrue(ref.Optional) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		if value, found := data[ref.Key]; found || isTrue(ref.Optional) {
			return value, found, nil
		}
		return "", false, fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.Key, pod.Namespace, ref.Name)
	}
	return "", false, fmt.Errorf("process nodes cannot resolve this valueFrom: %s", strings.TrimSpace(source.String()))
}

// field returns a field of the pod by its path; some are known to the node only.
func field(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs":
		return loopback, nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, path)
}

func isTrue(b *bool) bool { return b != nil && *b }
