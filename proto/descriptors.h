/* The serialized google.protobuf.FileDescriptorSet of every proto file here and of all that they import. */
#ifndef LH_PROTO_DESCRIPTORS_H
#define LH_PROTO_DESCRIPTORS_H

#include <stddef.h>

extern const unsigned char lh_proto_descriptors[];
extern const size_t lh_proto_descriptors_size;

#endif
