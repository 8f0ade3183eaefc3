package driver

import (
	"math"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// Sizes of a volume. The cloud knows whole GiB only.
const (
	gib         = int64(1) << 30
	minGiB      = int64(1)
	maxGiB      = int64(16384)
	defaultSize = minGiB // for a claim that does not say; sparse, so it costs nothing
)

// sizeFor returns how many GiB a volume gets for a range: the required size rounded
// up, or no size if that breaks the limit. Zero in the range is "not given".
func sizeFor(r *csi.CapacityRange) (int64, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case required < 0 || limit < 0:
		return 0, errorf(codes.InvalidArgument, "capacity range of %d to %d bytes: a size cannot be negative", required, limit)
	case limit != 0 && required > limit:
		return 0, errorf(codes.InvalidArgument, "capacity range: the required %d bytes are more than the limit of %d bytes", required, limit)
	}
	size := defaultSize
	if required != 0 {
		size = max(minGiB, ceilGiB(required))
	}
	if size > maxGiB {
		return 0, errorf(codes.OutOfRange, "a volume of %d bytes cannot be had: the cloud's volumes have at most %d GiB", required, maxGiB)
	}
	if limit != 0 && size*gib > limit {
		return 0, errorf(codes.OutOfRange, "no volume fits %d to %d bytes: the cloud's volumes have whole GiB, at least %d; raise the limit to %d bytes",
			required, limit, minGiB, size*gib)
	}
	return size, nil
}

func ceilGiB(bytes int64) int64 {
	if bytes > math.MaxInt64-gib {
		return bytes/gib + 1
	}
	return (bytes + gib - 1) / gib
}

// within tells whether a volume of that many GiB satisfies a range.
func within(r *csi.CapacityRange, size int64) bool {
	bytes := size * gib
	return bytes >= r.GetRequiredBytes() && (r.GetLimitBytes() == 0 || bytes <= r.GetLimitBytes())
}
