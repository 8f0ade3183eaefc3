package stats

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestOperationsInPrometheusText(t *testing.T) {
	o := NewOperations()
	plugin := PluginName("kubernetes.io/csi", "a.example.com")
	o.Operation(plugin, "volume_mount", 100*time.Millisecond, nil) // a bound belongs to its bucket
	o.Operation(plugin, "volume_mount", 700*time.Second, nil)
	o.Operation(plugin, "volume_mount", time.Second, errors.New("x"))
	o.EndToEnd(PluginName("kubernetes.io/secret", ""), "overall_volume_mount", 2*time.Second)
	o.Call("a.example.com", "/csi.v1.Node/NodeStageVolume", "OK", 11*time.Second)
	o.Reconstructed(nil)
	o.Reconstructed(errors.New("x"))
	var b strings.Builder
	if err := o.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE storage_operation_duration_seconds histogram",
		`storage_operation_duration_seconds_bucket{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:a.example.com",le="0.1"} 1`,
		`storage_operation_duration_seconds_bucket{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:a.example.com",le="600"} 1`,
		`storage_operation_duration_seconds_bucket{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:a.example.com",le="+Inf"} 2`,
		`storage_operation_duration_seconds_sum{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:a.example.com"} 700.1`,
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="kubernetes.io/csi:a.example.com"} 1`,
		`volume_operation_total_seconds_bucket{operation_name="overall_volume_mount",plugin_name="kubernetes.io/secret",le="2.5"} 1`,
		`csi_operations_seconds_bucket{driver_name="a.example.com",grpc_status_code="OK",method_name="/csi.v1.Node/NodeStageVolume",migrated="false",le="10"} 0`,
		`csi_operations_seconds_bucket{driver_name="a.example.com",grpc_status_code="OK",method_name="/csi.v1.Node/NodeStageVolume",migrated="false",le="15"} 1`,
		"reconstruct_volume_operations_total 2", "reconstruct_volume_operations_errors_total 1", "force_cleaned_failed_volume_operations_total 0",
	} {
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("no line %s in\n%s", want, b.String())
		}
	}
}
