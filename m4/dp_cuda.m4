# DP_CUDA: --with-cuda[=DIR|no|guess], --with-cuda-arch="80 90", --with-cublas and so on. Finds the toolkit, cuBLAS, cuDNN,
# NCCL and CUPTI. Each is guessed; it is a hard error only when asked for by name. Nothing is decided inside a branch that a
# conditional depends on.

# DP_CUDA_LIB(option, name, library, function, header): sets have_OPTION.
AC_DEFUN([DP_CUDA_LIB],[
  AC_ARG_WITH([$1],[AS_HELP_STRING([--with-$1],[use $2 (default: when found, with CUDA)])],[],[with_$1=guess])
  have_$1=no
  AS_IF([test "x$have_cuda" = xyes && test "x$with_$1" != xno],[
    AC_CHECK_HEADER([$5],[AC_CHECK_LIB([$3],[$4],[have_$1=yes])])
  ])
  AS_IF([test "x$have_$1" = xno && test "x$with_$1" != xno && test "x$with_$1" != xguess],
        [AC_MSG_ERROR([$2 was asked for but not found])])
  AS_IF([test "x$have_$1" = xyes],[AC_DEFINE([HAVE_]m4_toupper([$1]),[1],[$2 is present])])
  AM_CONDITIONAL([HAVE_]m4_toupper([$1]),[test "x$have_$1" = xyes])
])

AC_DEFUN([DP_CUDA],[
AC_ARG_VAR([NVCC],[CUDA compiler])
AC_ARG_VAR([NVCCFLAGS],[CUDA compiler flags])
AC_ARG_WITH([cuda],[AS_HELP_STRING([--with-cuda=DIR],[use the CUDA Toolkit in DIR (default: when found)])],[],[with_cuda=guess])
AC_ARG_WITH([cuda-arch],[AS_HELP_STRING([--with-cuda-arch=LIST],[GPU architectures (default: "80 90")])],
  [],[with_cuda_arch="80 90"])
have_cuda=no
save_CPPFLAGS=$CPPFLAGS; save_LDFLAGS=$LDFLAGS; save_LIBS=$LIBS
AS_IF([test "x$with_cuda" != xno],[
  AS_CASE([$with_cuda],
    [yes|guess],[AC_PATH_PROG([NVCC],[nvcc],[],[/usr/local/cuda/bin:$PATH])
     cuda_path=`AS_DIRNAME(["$NVCC"])`; cuda_path=`AS_DIRNAME(["$cuda_path"])`],
    [AC_PATH_PROG([NVCC],[nvcc],[],[$with_cuda/bin])
     cuda_path=$with_cuda])
  AS_IF([test -n "$NVCC"],[
    AS_IF([test -d "$cuda_path/lib64"],[cuda_libdir=$cuda_path/lib64],[cuda_libdir=$cuda_path/lib])
    CUDA_CPPFLAGS="-isystem $cuda_path/extras/CUPTI/include"
    CUDA_LDFLAGS="-L$cuda_path/extras/CUPTI/lib64 -L$cuda_libdir/stubs"
    # /usr is searched anyway, and named first it would hide what the compiler puts before it
    AS_IF([test "x$cuda_path" != x/usr],[
      CUDA_CPPFLAGS="-isystem $cuda_path/include $CUDA_CPPFLAGS"
      CUDA_LDFLAGS="-L$cuda_libdir $CUDA_LDFLAGS -Wl,-rpath,$cuda_libdir"
    ])
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"; LDFLAGS="$LDFLAGS $CUDA_LDFLAGS"
    AC_CHECK_HEADER([cuda_runtime.h],[AC_CHECK_LIB([cudart],[cudaGetDeviceCount],[have_cuda=yes])])
  ])
  AS_IF([test "x$have_cuda" = xno && test "x$with_cuda" != xguess],[AC_MSG_ERROR([CUDA was asked for but not found])])
])
DP_CUDA_LIB([cublas],[cuBLAS],[cublasLt],[cublasLtCreate],[cublasLt.h])
DP_CUDA_LIB([cudnn],[cuDNN],[cudnn],[cudnnGetVersion],[cudnn.h])
DP_CUDA_LIB([nccl],[NCCL],[nccl],[ncclGetVersion],[nccl.h])
DP_CUDA_LIB([cupti],[CUPTI],[cupti],[cuptiGetVersion],[cupti.h])
# The library that records a program needs the headers of CUPTI 13 and NVTX 3; CUPTI itself is found when it is used.
have_inject=no
AS_IF([test "x$have_cupti" = xyes],[
  AC_CHECK_TYPE([CUpti_ActivityKernel10],[AC_CHECK_HEADER([nvtx3/nvToolsExt.h],[have_inject=yes])],[],[#include <cupti.h>])
])
AS_IF([test "x$have_inject" = xyes],
  [AC_DEFINE_UNQUOTED([DP_CUPTI_LIBDIR],["$cuda_path/extras/CUPTI/lib64"],[Where CUPTI is looked for last])])
AM_CONDITIONAL([HAVE_INJECT],[test "x$have_inject" = xyes])
CPPFLAGS=$save_CPPFLAGS; LDFLAGS=$save_LDFLAGS; LIBS=$save_LIBS
NVCC_GENCODE=
for a in $with_cuda_arch; do NVCC_GENCODE="$NVCC_GENCODE -gencode=arch=compute_$a,code=sm_$a"; done
AS_IF([test "x$have_cuda" = xyes],[AC_DEFINE([HAVE_CUDA],[1],[The CUDA Toolkit is present])])
AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([CUDA_LDFLAGS]) AC_SUBST([NVCC_GENCODE])
AC_SUBST([CUDART_LIBS],["-lcudart"])
AM_CONDITIONAL([HAVE_CUDA],[test "x$have_cuda" = xyes])
# The executor on CUDA devices needs all three.
have_cuda_backend=no
AS_IF([test "x$have_cuda:$have_cublas:$have_cudnn" = xyes:yes:yes],[
  have_cuda_backend=yes
  AC_DEFINE([HAVE_CUDA_BACKEND],[1],[The executor can use CUDA devices])
  # not -lcuda: a machine without a driver runs the program, too; what the driver alone can do is looked up when it is used.
  # Nor cuBLASLt, cuDNN and NCCL: kernels/cuda/libraries.c loads them when a device is first used.
  AC_SEARCH_LIBS([dlopen],[dl])
  AC_DEFINE_UNQUOTED([DP_CUDA_LIBDIR],["$cuda_libdir"],[Where libraries of CUDA are looked for last])
  CUDA_BACKEND_LIBS="$CUDA_LDFLAGS -lcudart -lstdc++"
])
AC_SUBST([CUDA_BACKEND_LIBS])
AM_CONDITIONAL([HAVE_CUDA_BACKEND],[test "x$have_cuda_backend" = xyes])
])
